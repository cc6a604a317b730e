//! A libibverbs look-alike over the simulator.
