//! Why a device cannot be used, as data: what was seen, and one sentence that leads out.

use std::path::PathBuf;

use hugemr_core::errno::Errno;

/// The kernel interface versions that libibverbs speaks (`IB_USER_VERBS_MIN_ABI_VERSION` to `_MAX_`, rdma-core).
pub(crate) const KERNEL_ABI: std::ops::RangeInclusive<u32> = 3..=6;

/// Why no device, or not this one, can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// libibverbs cannot be loaded.
    #[error("libibverbs cannot be loaded ({tried}): {detail}")]
    NoLibrary {
        /// The name or path.
        tried: String,
        /// What the dynamic linker said.
        detail: String,
    },
    /// The library lacks a function.
    #[error("{library} has no {symbol}{}", version.as_ref().map(|v| format!(" at version {v}")).unwrap_or_default())]
    NoSymbol {
        /// The library.
        library: String,
        /// The function.
        symbol: String,
        /// The symbol version that was asked for, where the library has versions.
        version: Option<String>,
    },
    /// The kernel has no user-space verbs: `ibv_get_device_list` failed with ENOSYS, or a device has no uverbs entry.
    #[error("the kernel has no user-space verbs{}", device.as_ref().map(|d| format!(" for {d}")).unwrap_or_default())]
    NoKernelSupport {
        /// The device that has no uverbs entry; `None` where there are no verbs at all.
        device: Option<String>,
    },
    /// Everything is there but a device.
    #[error("there is no RDMA device")]
    NoDevice,
    /// There are devices, but none of that name.
    #[error("there is no RDMA device {name}; there is {}", present.join(", "))]
    NoSuchDevice {
        /// The name asked for.
        name: String,
        /// The names there are.
        present: Vec<String>,
    },
    /// The kernel has the device, libibverbs does not: its user-space provider is missing.
    #[error("the kernel has {device}, libibverbs does not: no user-space provider {provider}")]
    NoProvider {
        /// The device.
        device: String,
        /// The provider's name: `erdma`, `mlx5`.
        provider: String,
    },
    /// The kernel has the device, its character device is not here: the usual state of a container.
    #[error("{device} has no character device {}", path.display())]
    NoCharDevice {
        /// The device.
        device: String,
        /// The file that is missing.
        path: PathBuf,
    },
    /// The character device may not be opened.
    #[error("{} may not be opened: {errno}", path.display())]
    NoPermission {
        /// The device.
        device: String,
        /// The file.
        path: PathBuf,
        /// EACCES or EPERM.
        errno: Errno,
    },
    /// Two parts speak different versions of an interface.
    #[error("{0}")]
    AbiMismatch(AbiMismatch),
    /// A verb failed in another way.
    #[error("{verb} failed{}: {errno}", device.as_ref().map(|d| format!(" on {d}")).unwrap_or_default())]
    Verb {
        /// The verb.
        verb: &'static str,
        /// The device, where there is one already.
        device: Option<String>,
        /// What it left in errno.
        errno: Errno,
    },
}

/// Which two parts do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AbiMismatch {
    /// Kernel and libibverbs.
    #[error(
        "the kernel's verbs interface has version {kernel}, libibverbs speaks {} to {}",
        KERNEL_ABI.start(),
        KERNEL_ABI.end()
    )]
    Kernel {
        /// `/sys/class/infiniband_verbs/abi_version`.
        kernel: u32,
    },
    /// libibverbs and a provider.
    #[error(
        "provider {provider} of {device} is built for libibverbs with provider interface {found:?}, this one has {library}"
    )]
    Provider {
        /// The device.
        device: String,
        /// The provider's name.
        provider: String,
        /// The number in the library.
        library: u32,
        /// The numbers in the file names of the provider.
        found: Vec<u32>,
    },
}

impl Unavailable {
    /// A stable word for machines.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoLibrary { .. } => "no_library",
            Self::NoSymbol { .. } => "no_symbol",
            Self::NoKernelSupport { .. } => "no_kernel_support",
            Self::NoDevice => "no_device",
            Self::NoSuchDevice { .. } => "no_such_device",
            Self::NoProvider { .. } => "no_provider",
            Self::NoCharDevice { .. } => "no_char_device",
            Self::NoPermission { .. } => "no_permission",
            Self::AbiMismatch(_) => "abi_mismatch",
            Self::Verb { .. } => "verb_failed",
        }
    }

    /// The errno behind it, where there was one.
    #[must_use]
    pub const fn errno(&self) -> Option<Errno> {
        match self {
            Self::NoKernelSupport { device: None } => Some(Errno::ENOSYS),
            Self::NoCharDevice { .. } => Some(Errno::ENOENT),
            Self::NoPermission { errno, .. } | Self::Verb { errno, .. } => Some(*errno),
            _ => None,
        }
    }

    /// One sentence that leads out.
    #[must_use]
    pub fn way_out(&self) -> String {
        match self {
            Self::NoLibrary { .. } => {
                "install it: apt install libibverbs1 ibverbs-providers, or dnf install libibverbs, or the vendor's \
                 RDMA package"
                    .to_owned()
            }
            Self::NoSymbol { .. } => format!(
                "install a complete libibverbs (rdma-core 1.1 interface or later), and check what {} names",
                crate::load::LIBRARY_VARIABLE
            ),
            Self::NoKernelSupport { device: None } => {
                "load the kernel's part with modprobe ib_uverbs, on the host rather than in a container; a kernel \
                 built without CONFIG_INFINIBAND_USER_ACCESS cannot do it"
                    .to_owned()
            }
            Self::NoKernelSupport { device: Some(_) } => {
                "load the kernel's part with modprobe ib_uverbs".to_owned()
            }
            Self::NoDevice => {
                "attach one and load its driver (eRDMA: bind an ERI to the instance, then modprobe erdma), and see \
                 rdma link; without hardware use --device sim:NAME"
                    .to_owned()
            }
            Self::NoSuchDevice { present, .. } => {
                format!("name one of these: {}", present.join(", "))
            }
            Self::NoProvider { provider, .. } if provider == "erdma" => {
                "install the provider: apt install ibverbs-providers (44 or later), or the vendor's eRDMA installer"
                    .to_owned()
            }
            Self::NoProvider { provider, .. } => format!(
                "install the provider: apt install ibverbs-providers, or the vendor's package for {provider}"
            ),
            Self::NoCharDevice { path, .. } => format!(
                "give it to the container: docker run --device {0} (and --ulimit memlock=-1), in Kubernetes the \
                 RDMA device plugin; on a host udev makes {0}",
                path.display()
            ),
            // `alloc_ucontext` of erdma without extended doorbells asks for CAP_SYS_RAWIO.
            Self::NoPermission { errno: Errno::EPERM, path, .. } => format!(
                "run it as root or with CAP_SYS_RAWIO, and in a container allow {} in the device cgroup",
                path.display()
            ),
            Self::NoPermission { path, .. } => format!(
                "give the user read and write access to {} (its group is often rdma; distributions make it 0666), \
                 and in a container allow it in the device cgroup",
                path.display()
            ),
            Self::AbiMismatch(AbiMismatch::Kernel { .. }) => {
                "install the libibverbs (rdma-core) that belongs to this kernel's RDMA drivers".to_owned()
            }
            Self::AbiMismatch(AbiMismatch::Provider { provider, .. }) => format!(
                "install libibverbs and the provider {provider} from one source: both from the distribution, or \
                 both from the vendor"
            ),
            Self::Verb { errno, .. } => match *errno {
                Errno::ENODEV => {
                    "reload the device's driver: it is gone or its command queue is dead (see dmesg)".to_owned()
                }
                // erdma answers so after 15 s (`erdma_wait_cmd_completion`), and with ENODEV from then on.
                Errno::ETIME => {
                    "reload the device's driver (all its users must stop first): the device does not answer, and the \
                     driver will not ask it again"
                        .to_owned()
                }
                Errno::EMFILE => "raise the number of open files (ulimit -n)".to_owned(),
                Errno::ENOMEM => {
                    "raise the memlock limit (ulimit -l unlimited) and free memory".to_owned()
                }
                _ => "see the last lines of dmesg".to_owned(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_answer() -> Vec<Unavailable> {
        let device = || "erdma_0".to_owned();
        let path = || PathBuf::from("/dev/infiniband/uverbs0");
        vec![
            Unavailable::NoLibrary {
                tried: "libibverbs.so.1".to_owned(),
                detail: "cannot open shared object file".to_owned(),
            },
            Unavailable::NoSymbol {
                library: "x.so".to_owned(),
                symbol: "ibv_reg_mr".to_owned(),
                version: Some("IBVERBS_1.1".to_owned()),
            },
            Unavailable::NoKernelSupport { device: None },
            Unavailable::NoKernelSupport {
                device: Some(device()),
            },
            Unavailable::NoDevice,
            Unavailable::NoSuchDevice {
                name: "erdma_9".to_owned(),
                present: vec![device()],
            },
            Unavailable::NoProvider {
                device: device(),
                provider: "erdma".to_owned(),
            },
            Unavailable::NoProvider {
                device: "mlx5_0".to_owned(),
                provider: "mlx5".to_owned(),
            },
            Unavailable::NoCharDevice {
                device: device(),
                path: path(),
            },
            Unavailable::NoPermission {
                device: device(),
                path: path(),
                errno: Errno::EACCES,
            },
            Unavailable::AbiMismatch(AbiMismatch::Kernel { kernel: 7 }),
            Unavailable::AbiMismatch(AbiMismatch::Provider {
                device: device(),
                provider: "erdma".to_owned(),
                library: 34,
                found: vec![65],
            }),
            Unavailable::Verb {
                verb: "ibv_open_device",
                device: Some(device()),
                errno: Errno::ENODEV,
            },
            Unavailable::Verb {
                verb: "ibv_open_device",
                device: Some(device()),
                errno: Errno::ETIME,
            },
        ]
    }

    #[test]
    fn every_answer_is_one_line_with_one_sentence_that_leads_out() {
        for answer in every_answer() {
            let said = answer.to_string();
            let way_out = answer.way_out();
            for text in [&said, &way_out] {
                assert!(!text.is_empty(), "{answer:?}");
                assert!(!text.contains('\n') && !text.contains("  "), "{text:?}");
                assert!(!text.ends_with('.'), "{text:?}");
            }
            assert!(!answer.code().is_empty());
        }
    }

    #[test]
    fn the_text_names_what_was_seen() {
        let texts: Vec<String> = every_answer().iter().map(ToString::to_string).collect();
        assert_eq!(texts[1], "x.so has no ibv_reg_mr at version IBVERBS_1.1");
        assert_eq!(texts[2], "the kernel has no user-space verbs");
        assert_eq!(texts[3], "the kernel has no user-space verbs for erdma_0");
        assert_eq!(
            texts[12],
            "ibv_open_device failed on erdma_0: ENODEV [19] No such device"
        );
    }
}
