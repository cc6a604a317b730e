//! hugemr on real RDMA devices.
