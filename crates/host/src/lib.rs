//! The Linux host side of hugemr.
