//! By which addresses a device might reach itself.

use std::fmt;
use std::path::Path;

use hugemr_core::errno::Errno;
use libc::c_int;

use crate::context::Context;
use crate::errno;
use crate::sys::consts::*;
use crate::sys::{Zeroed, ibv_ah_attr, ibv_gid, ibv_port_attr, ibv_qp_attr};
use crate::sysfs;

/// More addresses than this are not tried.
const MOST_ENDS: usize = 8;

/// One address of the device's own.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) port: u8,
    pub(super) mtu: u32,
    pub(super) address: Address,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// InfiniBand, inside one subnet.
    Lid(u16),
    /// RoCE.
    Gid {
        index: u8,
        gid: ibv_gid,
        kind: Option<String>,
    },
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Address::Lid(lid) => write!(f, "port {} lid {lid}", self.port),
            Address::Gid { index, kind, .. } => {
                write!(f, "port {} gid {index}", self.port)?;
                kind.as_ref().map_or(Ok(()), |kind| write!(f, " ({kind})"))
            }
        }
    }
}

impl End {
    /// The route to it.
    pub(super) fn route(&self) -> ibv_ah_attr {
        let mut route = ibv_qp_attr::zeroed().ah_attr;
        route.port_num = self.port;
        match &self.address {
            Address::Lid(lid) => route.dlid = *lid,
            Address::Gid { index, gid, .. } => {
                route.is_global = 1;
                route.grh.dgid = *gid;
                route.grh.sgid_index = *index;
                route.grh.hop_limit = 64;
            }
        }
        route
    }
}

/// Lower is tried first. An IPv4 address by RoCE v2 loops back most reliably; RoCE v1 has none left on new devices.
fn rank(gid: &ibv_gid, kind: Option<&str>) -> u8 {
    let v2 = kind.is_none_or(|kind| kind.contains("v2"));
    let ipv4 = gid
        .raw
        .starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
    match (v2, ipv4) {
        (true, true) => 0,
        (true, false) => 1,
        (false, true) => 2,
        (false, false) => 3,
    }
}

/// The device's own addresses, best first.
pub(super) fn ends(context: &Context, sys: &Path) -> Result<Vec<End>, String> {
    let attr = context.query().map_err(|error| error.to_string())?;
    let mut ends = Vec::new();
    let mut reasons = Vec::new();
    for number in 1..=attr.phys_port_cnt {
        match context.query_port(number) {
            Ok(port) if port.state != IBV_PORT_ACTIVE => {
                reasons.push(format!("port {number} is not active"));
            }
            Ok(port) => ends.extend(ends_of_port(context, sys, number, &port)),
            Err(errno) => reasons.push(format!("ibv_query_port {number}: {errno}")),
        }
    }
    if ends.is_empty() {
        reasons.push("no address of its own".to_owned());
        return Err(reasons.join("; "));
    }
    ends.truncate(MOST_ENDS);
    Ok(ends)
}

fn ends_of_port(context: &Context, sys: &Path, number: u8, port: &ibv_port_attr) -> Vec<End> {
    let end = |address| End {
        port: number,
        mtu: port.active_mtu,
        address,
    };
    if port.link_layer != IBV_LINK_LAYER_ETHERNET {
        return vec![end(Address::Lid(port.lid))];
    }
    let mut gids: Vec<(u8, Address)> = (0..=u8::MAX)
        .take(usize::try_from(port.gid_tbl_len).unwrap_or(0))
        .filter_map(|index| {
            let gid = query_gid(context, number, index).ok()?;
            // An empty entry has no interface identifier.
            if gid.raw[8..] == [0; 8] {
                return None;
            }
            let kind = sysfs::gid_type(sys, context.name(), number, u32::from(index));
            Some((
                rank(&gid, kind.as_deref()),
                Address::Gid { index, gid, kind },
            ))
        })
        .collect();
    gids.sort_by_key(|(rank, _)| *rank);
    gids.into_iter().map(|(_, address)| end(address)).collect()
}

fn query_gid(context: &Context, port: u8, index: u8) -> Result<ibv_gid, Errno> {
    let mut gid = ibv_gid::zeroed();
    // SAFETY: an open context and 16 writable bytes.
    let status = unsafe {
        (context.library().table().ibv_query_gid)(
            context.as_ptr(),
            port,
            c_int::from(index),
            &raw mut gid,
        )
    };
    errno::of_status(status).map_or(Ok(gid), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_address_by_roce_v2_comes_first() {
        let mut ipv4 = ibv_gid { raw: [0; 16] };
        ipv4.raw[10..].copy_from_slice(&[0xff, 0xff, 10, 77, 0, 1]);
        let mut link_local = ibv_gid { raw: [1; 16] };
        link_local.raw[..2].copy_from_slice(&[0xfe, 0x80]);
        let ranks = [
            rank(&ipv4, Some("RoCE v2")),
            rank(&link_local, Some("RoCE v2")),
            rank(&ipv4, Some("IB/RoCE v1")),
            rank(&link_local, Some("IB/RoCE v1")),
        ];
        assert_eq!(ranks, [0, 1, 2, 3]);
        assert_eq!(rank(&ipv4, None), 0);
    }
}
