//! An emulated eRDMA PCI device over vfio-user.
