//! Reservations on a host of two nodes, whose kernel is a few files.

mod changes;
mod full;
mod killed;
mod properties;
mod sim;

use super::*;
use crate::pools::Pools;
use crate::root::fake::Tree;

use sim::{NODES, Node, Sim, node_file};

const M2: PageSize = PageSize::M2;

fn request(pages: u64, spread: Spread) -> ReserveRequest {
    ReserveRequest {
        page: M2,
        pages,
        spread,
    }
}

fn reserve(sim: &Sim, pages: u64, spread: Spread) -> Result<Reservation, ReserveError> {
    Reserve::new(&sim.root(), request(pages, spread)).run()
}
