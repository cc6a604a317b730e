//! Simulated kernels, drivers and devices.
