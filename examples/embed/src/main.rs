//! A cache that keeps its blocks in registered memory, as a program would embed hugemr. On a machine without RDMA
//! hardware the device is a simulated one; the code is the same over `hugemr-verbs`.

use std::error::Error;

use hugemr::core::backend::Rkey;
use hugemr::core::host::{Host, Platform};
use hugemr::core::plan::{Pages, PlanRequest, plan};
use hugemr::core::size::PageSize;
use hugemr::{Build, Pool, RegBackend};
use hugemr_sim::Overrides;

/// What a block of the cache is to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    addr: u64,
    rkey: Rkey,
}

/// Blocks of equal length in registered memory.
struct Cache<B: RegBackend> {
    pool: Pool<B>,
    block: u64,
}

impl<B: RegBackend> Cache<B> {
    /// No MR ends inside of a block: one key is enough for each.
    fn new(
        blocks: u64,
        block: u64,
        backend: B,
        platform: &Platform,
    ) -> Result<Self, Box<dyn Error>> {
        let mut request = PlanRequest::total(blocks * block).pages(Pages::Only(PageSize::K4));
        request.block = Some(block);
        let host = Host {
            platform: platform.clone(),
            ..Host::default()
        };
        let plan = plan(&request, backend.device(), &host)?;
        let pool = Build::new(&plan).predict_for(platform).build(backend)?;
        Ok(Self { pool, block })
    }

    fn place(&self, number: u64) -> Result<Place, Box<dyn Error>> {
        let addr = self.pool.base() + number * self.block;
        let key = self.pool.keys().lookup(addr, self.block)?;
        Ok(Place {
            addr,
            rkey: key.rkey,
        })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let device = hugemr_sim::open("sim:erdma", &Overrides::default())?;
    let platform = device.platform().clone();
    let cache = Cache::new(64, 96 << 10, device, &platform)?;
    println!(
        "{} MRs, {} bytes",
        cache.pool.mrs().count(),
        cache.pool.bytes()
    );
    println!("block 63: {:#x?}", cache.place(63)?);
    cache.pool.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugemr::core::backend::Verb;
    use hugemr::core::errno::Errno;
    use hugemr::core::fact::{Kind, Limit, Source};
    use hugemr_sim::{DefaultLayout, Faults};

    /// A device that takes 1 MiB for each MR, and sees every page of 4 KiB alone.
    fn limits() -> Overrides {
        let size = Limit::exact(1 << 20, Source::new(Kind::Given, "test"));
        Overrides {
            max_mr_size: Some(size),
            memory: Some(DefaultLayout::scattered(PageSize::K4)),
            ..Overrides::default()
        }
    }

    #[test]
    fn every_block_has_one_key() {
        let device = hugemr_sim::open("sim:erdma", &limits()).expect("a device");
        let platform = device.platform().clone();
        let cache = Cache::new(64, 96 << 10, &device, &platform).expect("a cache");
        // 6 MiB in MRs of 10 blocks: the next block would go beyond 1 MiB.
        let state = device.state();
        assert_eq!((state.mrs, state.entries), (7, 1536));
        for number in 0..64 {
            let place = cache.place(number).expect("a place");
            let mr = cache.pool.mrs().nth((number / 10) as usize).expect("an MR");
            assert_eq!(place.rkey, mr.mr.rkey);
        }
        cache.pool.close().expect("everything is taken back");
        assert_eq!(device.state().mrs, 0);
    }

    /// What the program does when the device refuses, tried without a device.
    #[test]
    fn a_refusal_leaves_nothing_behind() {
        let faults = Faults::default().fail(Verb::RegMr, 4, Errno::EIO);
        let device = hugemr_sim::open(
            "sim:erdma",
            &Overrides {
                faults: Some(faults),
                ..limits()
            },
        );
        let device = device.expect("a device");
        let platform = device.platform().clone();
        assert!(Cache::new(64, 96 << 10, &device, &platform).is_err());
        let state = device.state();
        assert_eq!((state.mrs, state.entries, state.registered), (0, 0, 3));
    }
}
