//! The host: memory, limits, devices' files, and the program itself.

use crate::*;

#[test]
fn c36_a_container_without_huge_pages() {
    let evidence = Evidence {
        errno: Some(Errno::EFAULT),
        backing: Some(BackingPages::Huge),
        container: Some(true),
        hugetlb_cgroup_limit: Some(0),
        ..Evidence::default()
    };
    likely(&evidence, Cause::HugetlbCgroup);
}

/// EOPNOTSUPP of the pin itself is file-system DAX; without the kernel's line nothing decides.
#[test]
fn a_pin_that_is_not_supported() {
    let said = |pin_failed| Evidence {
        said_pin_failed: pin_failed,
        ..Evidence::of_errno(Errno::EOPNOTSUPP, Family::Other)
    };
    likely(&said(Some(true)), Cause::FileBacked);
    check(&said(Some(true)), Cause::UnsupportedOperation, RuledOut);
    check(&said(Some(true)), Cause::OdpUnsupported, RuledOut);
    let bare = check(&said(None), Cause::FileBacked, Possible);
    assert!(bare.undecided());
    assert_eq!(bare.first().map(|r| r.cause), Some(Cause::FileBacked));
    // Another errno of the pin says nothing about DAX.
    let fault = Evidence {
        said_pin_failed: Some(true),
        ..Evidence::of_errno(Errno::EFAULT, Family::Other)
    };
    assert!(check(&fault, Cause::FileBacked, Possible).undecided());
}

/// A hint from another line ranks, and rules nothing out.
#[test]
fn gpu_memory_on_a_line_before() {
    let hinted = Evidence {
        said_gpu_nearby: Some(true),
        ..Evidence::of_errno(Errno::EFAULT, Family::Other)
    };
    let diagnosis = check(&hinted, Cause::GpuPointer, Possible);
    assert_eq!(diagnosis.first().map(|r| r.cause), Some(Cause::GpuPointer));
    check(&hinted, Cause::FileBacked, Possible);
    let host = Evidence {
        memory: Some(MemoryKind::NotGpu),
        ..hinted
    };
    check(&host, Cause::GpuPointer, RuledOut);
    check(&host, Cause::FileBacked, Possible);
}

#[test]
fn addresses_and_access() {
    let mr = |addr, iova, access| Evidence {
        length: Some(MIB),
        addr: Some(addr),
        iova: Some(iova),
        access: Some(access),
        ..erdma(Errno::EINVAL)
    };
    likely(&mr(0x1000, 0x800, Access::REMOTE_RW), Cause::IovaOffset);
    check(
        &mr(0x1000, 0x2000, Access::REMOTE_RW),
        Cause::IovaOffset,
        RuledOut,
    );
    likely(
        &mr(0x1000, 0x1000, Access::REMOTE_WRITE),
        Cause::AccessFlags,
    );
    likely(
        &mr(0x1000, 0x1000, Access::from_bits_retain(1 << 19)),
        Cause::AccessFlags,
    );
    check(
        &mr(0x1000, 0x1000, Access::REMOTE_RW),
        Cause::AccessFlags,
        RuledOut,
    );
    likely(
        &mr(u64::MAX - 10, u64::MAX - 10, Access::REMOTE_RW),
        Cause::AddressOverflow,
    );
    let odp = Access::REMOTE_RW | Access::from_bits_retain(1 << 6);
    likely(&mr(0x1000, 0x1000, odp), Cause::OdpUnsupported);
    check(
        &mr(0x1000, 0x1000, Access::REMOTE_RW),
        Cause::OdpUnsupported,
        RuledOut,
    );
    let transfer = |access| Evidence {
        operation: Some(Operation::Transfer),
        access: Some(access),
        ..Evidence::default()
    };
    check(&transfer(Access::LOCAL_WRITE), Cause::AccessFlags, Likely);
    check(&transfer(Access::REMOTE_RW), Cause::AccessFlags, Possible);
}

#[test]
fn fork_and_huge_pages() {
    // openucx/ucx#6985: 10 MiB on 512 MiB pages.
    let mr = |init, safe| Evidence {
        addr: Some(70_369_383_809_024),
        length: Some(10 * MIB),
        backing: Some(BackingPages::Of(PageSize::M512)),
        fork_init: init,
        hugepages_safe: safe,
        ..erdma(Errno::EINVAL)
    };
    likely(&mr(Some(true), Some(false)), Cause::ForkAlignment);
    check(&mr(None, None), Cause::ForkAlignment, Possible);
    check(&mr(Some(false), None), Cause::ForkAlignment, RuledOut);
    check(&mr(Some(true), Some(true)), Cause::ForkAlignment, RuledOut);
    let aligned = Evidence {
        addr: Some(0),
        length: Some(GIB),
        ..mr(Some(true), Some(false))
    };
    check(&aligned, Cause::ForkAlignment, RuledOut);
}

#[test]
fn memlock() {
    let mr = |limit: Option<Limit>, pinned| Evidence {
        length: Some(GIB),
        memlock: limit,
        pinned,
        ..erdma(Errno::ENOMEM)
    };
    likely(&mr(exact(8 * MIB), None), Cause::Memlock);
    likely(&mr(exact(2 * GIB), Some(2 * GIB)), Cause::Memlock);
    check(&mr(exact(2 * GIB), Some(GIB)), Cause::Memlock, RuledOut);
    check(&mr(exact(2 * GIB), None), Cause::Memlock, Possible);
    check(&mr(unlimited(), None), Cause::Memlock, RuledOut);
    check(&mr(exact(0), None), Cause::Memlock, RuledOut);
    check(&mr(None, None), Cause::Memlock, Possible);
    let copies = Evidence {
        copies: Some(2),
        ..mr(exact(3 * GIB / 2), None)
    };
    likely(&copies, Cause::Memlock);
    let capable = |container| Evidence {
        ipc_lock: Some(true),
        container: Some(container),
        ..mr(exact(8 * MIB), None)
    };
    check(&capable(false), Cause::Memlock, RuledOut);
    check(&capable(true), Cause::Memlock, Likely);
    let zero = |family| Evidence {
        memlock: exact(0),
        ..Evidence::of_errno(Errno::EPERM, family)
    };
    likely(&zero(Family::Efa), Cause::MemlockZero);
    let some = Evidence {
        memlock: exact(1),
        ..zero(Family::Efa)
    };
    check(&some, Cause::MemlockZero, RuledOut);
}

#[test]
fn the_kernels_memory() {
    let mr = |available| Evidence {
        length: Some(64 * GIB),
        effective_page: Some(PageSize::K4),
        mem_available: Some(available),
        ..erdma(Errno::ENOMEM)
    };
    check(&mr(64 * MIB), Cause::KernelTableMemory, Likely);
    check(&mr(64 * GIB), Cause::KernelTableMemory, Possible);
    let maps = |maps, fork| Evidence {
        maps: Some(maps),
        max_map_count: Some(65_530),
        fork_init: fork,
        ..erdma(Errno::ENOMEM)
    };
    check(&maps(65_530, None), Cause::MaxMapCount, Likely);
    check(&maps(100, None), Cause::MaxMapCount, RuledOut);
    check(&maps(65_530, Some(false)), Cause::MaxMapCount, RuledOut);
    let movable = |movable| Evidence {
        movable: Some(movable),
        ..erdma(Errno::ENOMEM)
    };
    check(&movable(true), Cause::CmaPinning, Possible);
    check(&movable(false), Cause::CmaPinning, RuledOut);
}

#[test]
fn bad_addresses() {
    let mr = || erdma(Errno::EFAULT);
    likely(
        &Evidence {
            mapped: Some(false),
            ..mr()
        },
        Cause::Unmapped,
    );
    likely(
        &Evidence {
            addr: Some(0),
            ..mr()
        },
        Cause::Unmapped,
    );
    check(
        &Evidence {
            mapped: Some(true),
            ..mr()
        },
        Cause::Unmapped,
        RuledOut,
    );
    let written = |access| Evidence {
        writable: Some(false),
        access,
        ..mr()
    };
    likely(&written(Some(Access::REMOTE_RW)), Cause::ReadOnly);
    check(
        &written(Some(Access::REMOTE_READ)),
        Cause::ReadOnly,
        Possible,
    );
    check(&written(None), Cause::ReadOnly, Possible);
    check(
        &Evidence {
            writable: Some(true),
            ..mr()
        },
        Cause::ReadOnly,
        RuledOut,
    );
    likely(
        &Evidence {
            readable: Some(false),
            ..mr()
        },
        Cause::ReadOnly,
    );
    let gpu = |peer| Evidence {
        memory: Some(MemoryKind::Gpu),
        peer_memory: peer,
        ..mr()
    };
    likely(&gpu(Some(false)), Cause::GpuPointer);
    check(&gpu(None), Cause::GpuPointer, Possible);
    check(&gpu(Some(true)), Cause::GpuPointer, Possible);
    check(
        &Evidence {
            memory: Some(MemoryKind::Host),
            ..mr()
        },
        Cause::GpuPointer,
        RuledOut,
    );
    let file = |kernel| Evidence {
        memory: Some(MemoryKind::File),
        platform: platform(kernel, Driver::InTree),
        ..mr()
    };
    likely(&file("6.12.117"), Cause::FileBacked);
    check(&file("6.1.192"), Cause::FileBacked, Possible);
}

#[test]
fn huge_page_pools_and_cgroups() {
    let pool = |operation, errno, free| Evidence {
        length: Some(GIB),
        backing: Some(BackingPages::Of(PageSize::M2)),
        hugepages_free: Some(free),
        ..at(operation, errno)
    };
    likely(
        &pool(Operation::Mmap, Errno::ENOMEM, 511),
        Cause::HugepagePool,
    );
    check(
        &pool(Operation::Mmap, Errno::ENOMEM, 512),
        Cause::HugepagePool,
        Possible,
    );
    check(
        &pool(Operation::Populate, Errno::EFAULT, 0),
        Cause::HugepagePool,
        Possible,
    );
    check(
        &pool(Operation::RegMr, Errno::EFAULT, 3),
        Cause::HugepagePool,
        Possible,
    );
    let fix = &diagnose(&pool(Operation::Mmap, Errno::ENOMEM, 500)).causes[0].fix;
    assert!(fix.contains("12 more pages of 2 MiB"), "{fix}");
    let base = Evidence {
        backing: Some(BackingPages::Of(PageSize::K4)),
        ..erdma(Errno::EFAULT)
    };
    check(&base, Cause::HugepagePool, RuledOut);
    check(&base, Cause::HugetlbCgroup, RuledOut);
    let cgroup = |limit| Evidence {
        hugetlb_cgroup_limit: limit,
        container: Some(true),
        ..pool(Operation::Mmap, Errno::ENOMEM, 1000)
    };
    likely(&cgroup(Some(GIB - 1)), Cause::HugetlbCgroup);
    check(&cgroup(Some(GIB)), Cause::HugetlbCgroup, Possible);
    check(&cgroup(None), Cause::HugetlbCgroup, Possible);
}

#[test]
fn iommu_and_cgroup() {
    let mr = |length, run, iommu| Evidence {
        length: Some(length),
        longest_run: run,
        platform: Platform {
            iommu,
            ..Platform::default()
        },
        ..Evidence::of_errno(Errno::EOVERFLOW, Family::Efa)
    };
    likely(&mr(8 * GIB, Some(5 * GIB), Some(true)), Cause::IommuPadding);
    check(&mr(8 * GIB, None, None), Cause::IommuPadding, Possible);
    check(&mr(GIB, None, Some(true)), Cause::IommuPadding, RuledOut);
    check(
        &mr(8 * GIB, None, Some(false)),
        Cause::IommuPadding,
        RuledOut,
    );
    let cgroup = |full| Evidence {
        rdma_cgroup_full: Some(full),
        ..erdma(Errno::EAGAIN)
    };
    likely(&cgroup(true), Cause::RdmaCgroup);
    check(&cgroup(false), Cause::RdmaCgroup, RuledOut);
}

#[test]
fn opening_and_mapping() {
    let open = |errno| at(Operation::Open, errno);
    likely(
        &Evidence {
            provider_loaded: Some(false),
            ..open(Errno::ENOSYS)
        },
        Cause::MissingProvider,
    );
    check(
        &Evidence {
            provider_loaded: Some(true),
            ..open(Errno::ENOSYS)
        },
        Cause::MissingProvider,
        RuledOut,
    );
    likely(
        &Evidence {
            device_file: Some(false),
            ..open(Errno::ENOENT)
        },
        Cause::DeviceFile,
    );
    check(
        &Evidence {
            device_file: Some(true),
            ..open(Errno::EACCES)
        },
        Cause::DeviceFile,
        RuledOut,
    );
    check(
        &Evidence {
            platform: platform("6.12", Driver::InTree),
            ..open(Errno::EPERM)
        },
        Cause::RawIoPrivilege,
        Possible,
    );
    check(
        &Evidence {
            platform: platform("6.1", Driver::InTree),
            ..open(Errno::EPERM)
        },
        Cause::RawIoPrivilege,
        RuledOut,
    );
    check(
        &at(Operation::Mmap, Errno::ENODEV),
        Cause::PageSizeUnsupported,
        Possible,
    );
    check(
        &at(Operation::Mmap, Errno::EPERM),
        Cause::ShmGroup,
        Possible,
    );
    let populate = |kernel| Evidence {
        platform: platform(kernel, Driver::Unknown),
        ..at(Operation::Populate, Errno::EINVAL)
    };
    likely(&populate("5.10.134"), Cause::PopulateUnsupported);
    check(&populate("6.1"), Cause::PopulateUnsupported, Possible);
    let memory = Evidence {
        length: Some(2 * GIB),
        mem_available: Some(GIB),
        ..at(Operation::Populate, Errno::ENOMEM)
    };
    likely(&memory, Cause::HostMemory);
    check(
        &at(Operation::DeregMr, Errno::EBUSY),
        Cause::MrInUse,
        Possible,
    );
    check(
        &at(Operation::DeregMr, Errno::EINVAL),
        Cause::StaleHandle,
        Possible,
    );
    check(
        &at(Operation::QueryDevice, Errno::ENODEV),
        Cause::DeviceGone,
        Possible,
    );
}
