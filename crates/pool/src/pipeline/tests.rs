use std::time::{Duration, Instant};

use hugemr_core::host::Host;
use hugemr_core::plan::{PlanRequest, plan};
use hugemr_core::size::{GIB, MIB};
use hugemr_host::mapping::{Kind, MapRequest};
use hugemr_sim::{Overrides, SimDevice};

use super::*;

/// Nothing here takes longer; on a busy machine either.
const FOREVER: Duration = Duration::from_secs(60);

#[test]
fn an_mr_is_held_against_the_plan() {
    let chunk = Chunk {
        index: 3,
        offset: 0,
        len: 8 * GIB,
        page: PageSize::M2,
    };
    let check = |entries, wire_len| {
        let predicted = layout::Prediction {
            page: PageSize::M2,
            entries,
            level: 2,
            wire_len,
            refused: None,
        };
        against_plan(&chunk, 0x7e00_0000_0000, predicted, 4096)
    };
    assert_eq!(check(4096, 8 * GIB), None);
    assert_eq!(check(8, 8 * GIB), None);
    let over = check(4097, 8 * GIB);
    assert!(matches!(
        over,
        Some(CheckFailure::Entries {
            mr: 3,
            planned: 4096,
            ..
        })
    ));
    // Fewer entries than planned, and the call would succeed with a wrong length.
    assert!(matches!(
        check(8, 0),
        Some(CheckFailure::WireLength { mr: 3, .. })
    ));
}

/// Two nodes of four chunks each, a thread in each. The first chunk of the first node becomes ready when all of the second
/// node are registered: in the order of addresses they would wait for each other.
#[test]
fn a_node_does_not_wait_for_another() {
    let device = Arc::new(hugemr_sim::open("sim:erdma", &Overrides::default()).unwrap());
    let host = Host {
        platform: device.platform().clone(),
        ..Host::default()
    };
    let mut request = PlanRequest::total(8 * MIB).pages(Pages::Only(PageSize::K4));
    request.chunk = Some(MIB);
    let plan = plan(&request, device.device(), &host).unwrap();
    let node = |id| Node {
        id,
        cpus: Vec::new(),
        mem_free: 0,
        pools: Vec::new(),
    };
    let place = |id: u32| Stretch {
        offset: u64::from(id) * 4 * MIB,
        len: 4 * MIB,
        page: PageSize::K4,
        place: Place::On(id),
    };
    let root = Root::real();
    let memory = Arc::new(MapRequest::new(Kind::Base, 8 * MIB).map(&root).unwrap());
    let second = memory.base() + 4 * MIB;
    let registered = |device: &SimDevice| {
        let live = device.mrs();
        live.iter().filter(|mr| mr.request.addr >= second).count()
    };
    let hook = |chunk: &Chunk, _: u64, _: &[PhysRun]| {
        let begin = Instant::now();
        while chunk.index == 0 && registered(&device) < 4 {
            if begin.elapsed() > FOREVER {
                return Err("the second node waits for the first".to_owned());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    };
    let job = Job {
        plan: &plan,
        memory,
        root: &root,
        access: Access::LOCAL_WRITE,
        threads: NonZeroUsize::new(2).unwrap(),
        cancel: &CancelToken::new(),
        tell: &|_| {},
        before: Some(&hook),
        road: Road::Best,
        rules: None,
        page_cap: device.device().page_size_cap,
        checked: false,
        watch: None,
        places: &[place(0), place(1)],
        nodes: &[node(0), node(1)],
    };
    let (registration, report) = run(&job, Arc::clone(&device)).unwrap();
    let order: Vec<u64> = registration.mrs().map(|mr| mr.chunk.index).collect();
    assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(report.mrs.len(), 8);
}
