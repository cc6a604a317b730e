//! Virtual machines with a real verbs stack, under QEMU in software emulation.

/// `cargo xtask vm ...`
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    anyhow::bail!("unknown guest {args:?}")
}
