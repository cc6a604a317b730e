//! Plans, registers and explains very large RDMA memory registrations.
