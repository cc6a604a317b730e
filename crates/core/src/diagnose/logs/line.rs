//! One line of a log: who speaks, and what it tells about a registration.

use super::text;
use crate::backend::Access;
use crate::device::Family;
use crate::diagnose::{Evidence, MemoryKind, Operation};
use crate::errno::Errno;
use crate::fact::{Kind, Limit, Source};
use crate::host::Driver;
use crate::size::{KIB, PageSize};

/// A longer line is cut here, bytes: records that carry their context in one line are far shorter.
pub const LONGEST_LINE: usize = 1 << 20;

/// What is looked at as one message, bytes: those that are known are far shorter. A longer line is read in windows of this
/// length, each of which begins in the middle of the one before: what stands closer together than half of it is seen together.
pub(super) const WINDOW: usize = 4096;

/// Who wrote a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Teller {
    /// Mooncake's transfer engine.
    Mooncake,
    /// UCX.
    Ucx,
    /// NCCL.
    Nccl,
    /// libfabric, or a program on it.
    Libfabric,
    /// libibverbs itself.
    Libibverbs,
    /// A driver in the kernel.
    Kernel,
    /// Any other program that calls verbs.
    Program,
}

/// What one line tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Who wrote it.
    pub teller: Teller,
    /// Whether the line reports a failure; else it only adds facts.
    pub is_failure: bool,
    /// What it tells. Only what the line itself says is set.
    pub evidence: Evidence,
}

/// Reads one line; `None` where it tells nothing about registrations.
///
/// Only the first [`LONGEST_LINE`] bytes are looked at. Bytes of any kind may stand in it.
#[must_use]
pub fn scan(line: &str) -> Option<Finding> {
    let mut best: Option<Finding> = None;
    let mut facts = Evidence::default();
    for window in windows(&line[..text::floor(line, LONGEST_LINE)]) {
        let Some(found) = message(window) else {
            continue;
        };
        add(&mut facts, &found.evidence);
        let rank = |f: &Finding| (f.is_failure, f.is_failure && f.evidence.errno.is_some());
        if best.as_ref().is_none_or(|best| rank(&found) > rank(best)) {
            best = Some(found);
        }
    }
    let mut found = best?;
    add(&mut found.evidence, &facts);
    Some(found)
}

/// The line in windows. None ends within a word, where that can be: a number that is cut would be another number.
fn windows(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let text = rest?;
        if text.len() <= WINDOW {
            rest = None;
            return Some(text);
        }
        let end = text::floor(text, WINDOW);
        let half = text::floor(text, WINDOW / 2);
        rest = Some(&text[half..]);
        let is_apart = |c: char| !c.is_alphanumeric() && c != '_';
        let word = text[half..end].rfind(is_apart);
        Some(&text[..word.map_or(end, |at| half + at)])
    })
}

/// Reads what stands together.
fn message(window: &str) -> Option<Finding> {
    let line = window.to_ascii_lowercase();
    if !text::is_of_a_log(&line) || !may_tell(&line) {
        return None;
    }
    told(&line)
}

/// Adds what holds for all that a line tells.
fn add(e: &mut Evidence, other: &Evidence) {
    if e.device.is_none() && e.family.is_none_or(|family| Some(family) == other.family) {
        e.device.clone_from(&other.device);
    }
    e.family = e.family.or(other.family);
    if e.platform.driver == Driver::Unknown {
        e.platform.driver = other.platform.driver;
    }
    e.said_command_timeout = e.said_command_timeout.or(other.said_command_timeout);
    e.said_pin_failed = e.said_pin_failed.or(other.said_pin_failed);
    e.said_out_of_memory = e.said_out_of_memory.or(other.said_out_of_memory);
}

/// Whether a line has any of the words without which it tells nothing. Most lines of most logs have none, and are done
/// with here: a foreign log of a gigabyte is read for nothing.
fn may_tell(line: &str) -> bool {
    const WORDS: [&str; 24] = [
        "oom-kill",
        "regist",
        "reg_",
        "mr_reg",
        "mr size",
        "max_mr_size",
        "page_size:",
        "start:0x",
        "create_m",
        "umem",
        "cmdq",
        "driver",
        "config directory",
        "access",
        "prot",
        "cuda",
        "roc",
        "gpu",
        "(host)",
        "mem",
        "net/",
        "rdma device:",
        "gid index",
        "using hca",
    ];
    WORDS.iter().any(|word| line.contains(word))
}

/// What a line in lower case tells: the failure that it reports, with the facts that stand beside it.
fn told(line: &str) -> Option<Finding> {
    let failure = refused(line)
        .or_else(|| libibverbs(line))
        .or_else(|| transfer(line))
        .or_else(|| shrunk(line))
        .or_else(|| registration(line));
    let beside = beside(line);
    let Some(mut f) = failure else {
        return beside.or_else(|| facts(line));
    };
    if let Some(beside) = beside {
        let (e, o) = (&mut f.evidence, &beside.evidence);
        add(e, o);
        e.effective_page = e.effective_page.or(o.effective_page);
        e.entries_need = e.entries_need.or(o.entries_need);
        e.addr = e.addr.or(o.addr);
        e.length = e.length.or(o.length);
        e.iova = e.iova.or(o.iova);
    }
    Some(f)
}

fn finding(teller: Teller, is_failure: bool, line: &str) -> Finding {
    let mut evidence = Evidence {
        failed: is_failure.then_some(true),
        ..Evidence::default()
    };
    if let Some(name) = text::device(line) {
        evidence.family = Some(Family::of_device(name, 0));
        evidence.device = Some(name.to_owned());
    }
    Finding {
        teller,
        is_failure,
        evidence,
    }
}

/// Failures in lines of drivers: the vendor's erdma (ANCK), efa, mlx5.
fn refused(line: &str) -> Option<Finding> {
    let has = |what: &str| line.contains(what);
    let mut f = finding(Teller::Kernel, true, line);
    let e = &mut f.evidence;
    if has("out of mr size") {
        e.family = Some(Family::Erdma);
        e.platform.driver = Driver::Vendor(None);
        e.operation = Some(Operation::RegMr);
        e.errno = Some(Errno::EINVAL);
        e.said_out_of_mr_size = Some(true);
        e.length = text::number_after(line, &["mr size"]);
        let source = Source::new(Kind::Documented, "\"Out of mr size\" in the kernel log");
        e.max_mr_size = text::number_after(line, &["max"]).map(|max| Limit::exact(max, source));
    } else if has("create_mkey(0x") && has("status ") {
        // mlx5_cmd_check and mlx5_cmd_out_err: "CREATE_MKEY(0x200) op_mod(0x0) failed, status bad parameter(0x3), syndrome
        // (0x..)", later kernels with ", err(-22)" behind. The device answered, so it is its refusal.
        let status = text::status_code(line);
        let shortage = has("limits exceeded") || has("no resources");
        e.family = Some(Family::Other);
        e.operation = Some(Operation::RegMr);
        e.errno = text::errno(line).or_else(|| status.and_then(errno_of_mlx5_status));
        e.said_device_refused = Some(true);
        e.said_keys_exhausted = shortage.then_some(true);
        e.said_no_shortage = (!shortage && status.is_some()).then_some(true);
    } else if has("failed to process command reg_mr") {
        e.operation = Some(Operation::RegMr);
        e.errno = text::errno(line);
        e.said_device_refused = Some(true);
    } else if has("create_mkey_warn")
        || has(": failed to register mr [")
        || has(": umem get failed (")
    {
        e.operation = Some(Operation::RegMr);
        e.errno = text::errno(line);
    } else if has("failed to deregister mr 0x") {
        e.operation = Some(Operation::DeregMr);
        e.errno = line
            .rsplit(':')
            .next()
            .and_then(|tail| text::errno(&format!("err {tail}")));
    } else {
        return None;
    }
    Some(f)
}

/// Facts in lines of the kernel, each of which may stand beside another, or beside a failure: the vendor's erdma, in-tree erdma
/// (6.6 and later, debug lines), umem, the OOM killer.
fn beside(line: &str) -> Option<Finding> {
    let has = |what: &str| line.contains(what);
    let mut f = finding(Teller::Kernel, false, line);
    let mut is_any = false;
    let mut any = |is: bool| {
        is_any |= is;
        is
    };
    let e = &mut f.evidence;
    if any(has("page_size:") && has("mtt_nents:")) {
        e.family = Some(Family::Erdma);
        e.platform.driver = Driver::Vendor(None);
        let page = text::number_after(line, &["page_size"]);
        e.effective_page = page.and_then(|bytes| PageSize::new(bytes).ok());
        e.entries_need = text::number_after(line, &["mtt_nents"]);
    }
    if any(has("start:0x") && has("virt:0x")) {
        e.family = Some(Family::Erdma);
        e.platform.driver = Driver::Vendor(None);
        e.addr = text::number_after(line, &["start"]);
        e.length = text::number_after(line, &["len"]);
        e.iova = text::number_after(line, &["virt"]);
    }
    if any(has("create_mtt") && has("force cont:0")) {
        e.family = Some(Family::Erdma);
        let bytes = text::number_after(line, &["size"]);
        e.entries_need = e.entries_need.or(bytes.map(|bytes| bytes / 8));
    }
    // drivers/infiniband/core/umem.c, a debug line; its driver's line comes next and has the errno.
    if any(has("ib_umem_get: failed to get user pages")) {
        e.said_pin_failed = Some(true);
    }
    if any(has("cmdq") && (has("timeout") || has("timed out"))) {
        e.said_command_timeout = Some(true);
    }
    // mm/oom_kill.c; of a memory cgroup "Memory cgroup out of memory: Killed process".
    if any(has("out of memory: kill") || has("invoked oom-killer") || has("oom-kill:")) {
        e.said_out_of_memory = Some(true);
    }
    is_any.then_some(f)
}

/// `cmd_status_to_err` of Linux's mlx5 (drivers/net/ethernet/mellanox/mlx5/core/cmd.c).
fn errno_of_mlx5_status(status: u64) -> Option<Errno> {
    Some(match status {
        0x2 | 0x3 | 0x5 | 0x9 | 0xa | 0x10 | 0x30 | 0x40 => Errno::EINVAL,
        0x6 => Errno::EBUSY,
        0x8 => Errno::ENOMEM,
        0xf => Errno::EAGAIN,
        0x1 | 0x4 | 0x50 | 0x51 => Errno::EIO,
        _ => return None,
    })
}

fn libibverbs(line: &str) -> Option<Finding> {
    let missing = line.contains("no userspace device-specific driver found")
        || line.contains("libibverbs")
            && (line.contains("couldn't load driver")
                || line.contains("couldn't open config directory"));
    missing.then(|| {
        let mut f = finding(Teller::Libibverbs, true, line);
        f.evidence.operation = Some(Operation::Open);
        f.evidence.provider_loaded = Some(false);
        f
    })
}

/// Work completions that speak of a range or a right: `ibv_wc_status_str` and the enum's names.
fn transfer(line: &str) -> Option<Finding> {
    const WORDS: [&str; 5] = [
        "remote access error",
        "rem_access_err",
        "local protection error",
        "loc_prot_err",
        "local access error",
    ];
    WORDS.iter().any(|word| line.contains(word)).then(|| {
        let mut f = finding(teller(line), true, line);
        f.evidence.operation = Some(Operation::Transfer);
        f
    })
}

/// Mooncake before it cut buffers itself: it registers the beginning, and gives all of it out (kvcache-ai/Mooncake#2017). The
/// errno that it prints then is one of an earlier call.
fn shrunk(line: &str) -> Option<Finding> {
    (line.contains("max_mr_size") && line.contains("shrink it to")).then(|| {
        let mut f = finding(teller(line), true, line);
        let e = &mut f.evidence;
        e.operation = Some(Operation::Transfer);
        e.length = text::number_after(line, &["shrink it to"]);
        e.said_shrunk = Some(true);
        f
    })
}

/// A registration that failed, in any program's words.
fn registration(line: &str) -> Option<Finding> {
    const FAILS: [&str; 6] = ["fail", "unable", "error", "could not", "couldn't", "cannot"];
    let (from, end) = registers(line)?;
    let failed = || text::fails(line, from, &FAILS) && !text::succeeded(line, from, &FAILS);
    if !text::begins_with_errno(&line[end..]) && !failed() {
        return None;
    }
    let teller = teller(line);
    let mut f = finding(teller, true, line);
    let e = &mut f.evidence;
    let takes_back = ["dereg", "unregister"]
        .iter()
        .any(|word| line.contains(word));
    e.operation = Some(if takes_back {
        Operation::DeregMr
    } else {
        Operation::RegMr
    });
    e.addr = text::number_after(line, &["address", "addr", "register memory"])
        .filter(|addr| *addr > 4096);
    e.length = text::number_after(line, &["length", "len", "size", "register mr of", "mr of"]);
    if let Some((start, length)) = text::range(line).or_else(|| text::pair(line)) {
        (e.addr, e.length) = (Some(start), Some(length));
    }
    e.addr = e.addr.or_else(|| text::first_address(line));
    e.access = text::number_after(line, &["access"])
        .and_then(|bits| u32::try_from(bits).ok())
        .map(Access::from_bits_retain);
    e.memory = memory(line);
    e.dmabuf = line.contains("reg_dmabuf_mr").then_some(true);
    e.memlock = text::number_after(line, &["(current"])
        .filter(|_| line.contains("ulimit -l"))
        .map(|kib| {
            let source = Source::new(Kind::Documented, "ulimit -l in the log");
            Limit::exact(kib.saturating_mul(KIB), source)
        });
    if line.contains(":efa:") || line.contains("prov/efa") {
        e.family = Some(Family::Efa);
    }
    // UCX translates: its upper layers say "Input/output error" for whatever ibv_reg_mr said before. Providers of
    // libfabric that are not on verbs call no ibv_reg_mr at all.
    let translated =
        teller == Teller::Ucx && !line.contains("ibv_") || text::provider_without_verbs(line);
    e.errno = text::errno(line).filter(|_| !translated);
    let libfabric = teller == Teller::Libfabric || line.contains("net/ofi");
    let on_verbs = ["ibv_", "verbs", ":efa:", "prov/efa"];
    e.errno_of_libfabric =
        (libfabric && !on_verbs.iter().any(|word| line.contains(word))).then_some(true);
    Some(f)
}

/// Where a line first speaks of a registration, from and to: by the name of a call, or in words that others use as well. Those count where
/// the address follows at once, where nobody else is named as the speaker, or where something of the line is of RDMA.
fn registers(line: &str) -> Option<(usize, usize)> {
    const CALLS: [&str; 6] = [
        "reg_mr",
        // Of drivers in the kernel: ib_device_ops.
        "reg_user_mr",
        "reg_dmabuf_mr",
        "mr_reg",
        "mr_regattr",
        "register mr",
    ];
    const WORDS: [&str; 8] = [
        "register memory",
        "register address",
        "register region",
        "register user buffer",
        "register buffer",
        "memory registration",
        "register the memory",
        "registering memory",
    ];
    // What a line of RDMA has besides: a library, a family, an object of verbs.
    const OF_RDMA: [&str; 27] = [
        "net/ib",
        "rdma",
        "verbs",
        "ibv_",
        "infiniband",
        "roce",
        "efa",
        "ucx",
        "ucp_",
        "uct_",
        "nccl",
        "ofi",
        "fi_",
        "libfabric",
        "mooncake",
        "transfer",
        "mlx",
        "ionic",
        "rkey",
        "lkey",
        "hca",
        "nic",
        "mr",
        "mrs",
        "pd",
        "nixl",
        "dmabuf",
    ];
    // Nouns that `register memory` stands before when it is about something else.
    const OF_OTHERS: [&str; 5] = ["instrument", "hotplug", "listener", "notifier", "slot"];
    let is_other = |rest: &str| {
        let rest = rest.trim_start_matches(' ');
        OF_OTHERS.iter().any(|noun| rest.starts_with(noun))
    };
    let is_of_rdma =
        text::device(line).is_some() || OF_RDMA.iter().any(|word| text::has_word(line, word));
    let by_words = WORDS.iter().filter_map(|word| {
        let at = line.find(word)?;
        let rest = &line[at + word.len()..];
        let is_meant = is_of_rdma || text::begins_with_address(rest) || speaks_alone(&line[..at]);
        (is_meant && !is_other(rest)).then_some((at, at + word.len()))
    });
    CALLS
        .iter()
        .filter_map(|word| line.find(word).map(|at| (at, at + word.len())))
        .chain(by_words)
        .min()
}

/// Whether nothing stands before a registration but that it failed, and how grave that is: no other program speaks.
fn speaks_alone(before: &str) -> bool {
    const WORDS: [&str; 13] = [
        "failed", "failure", "fail", "unable", "to", "could", "not", "couldn", "t", "cannot",
        "error", "warning", "fatal",
    ];
    before
        .split(|c: char| !c.is_alphanumeric())
        .all(|word| word.is_empty() || WORDS.contains(&word))
}

/// UCX names the kind of memory: as a bit (1 host, else a GPU), or in brackets.
fn memory(line: &str) -> Option<MemoryKind> {
    match text::number_after(line, &["mem_type bit"]) {
        Some(1) => return Some(MemoryKind::NotGpu),
        Some(bit) if bit.is_power_of_two() => return Some(MemoryKind::Gpu),
        _ => {}
    }
    // aws-ofi-nccl prints NCCL's kind of pointer: NCCL_PTR_HOST 1, NCCL_PTR_CUDA 2.
    if line.contains("net/ofi") {
        match text::number_after(line, &["(type"]) {
            Some(1) => return Some(MemoryKind::NotGpu),
            Some(2) => return Some(MemoryKind::Gpu),
            _ => {}
        }
    }
    if line.contains(" (host) ") {
        return Some(MemoryKind::NotGpu);
    }
    // cudaPointerGetAttributes: cudaMemoryTypeDevice 2, cudaMemoryTypeManaged 3.
    if line.contains("cudapointergetattributes")
        && matches!(
            text::number_after(line, &["memorytype", "type"]),
            Some(2 | 3)
        )
    {
        return Some(MemoryKind::Gpu);
    }
    [
        " (cuda) ",
        " (rocm) ",
        "fi_hmem_cuda",
        "fi_hmem_rocr",
        "gpu memory",
        "gpu buffer",
        "cuda memory",
        "memory is cuda",
        "memory type cuda",
        "memory type: cuda",
        "mem_type=cuda",
        "mem_type: cuda",
    ]
    .iter()
    .any(|word| line.contains(word))
    .then_some(MemoryKind::Gpu)
}

/// Lines that report no failure but name the device, or tell what is about to be registered.
fn facts(line: &str) -> Option<Finding> {
    // Of a range, not of how much memory a GPU has left.
    const OF_A_RANGE: [&str; 7] = [
        "regist",
        "0x",
        "cudapointergetattributes",
        "memory is",
        "memory type",
        "mem_type",
        "buffer",
    ];
    let memory = memory(line).filter(|_| OF_A_RANGE.iter().any(|word| line.contains(word)));
    let registers = line.contains("registering");
    if memory.is_some() || registers {
        let mut f = finding(teller(line), false, line);
        let e = &mut f.evidence;
        e.memory = memory;
        e.addr = text::first_address(line).filter(|_| registers);
        e.length = text::number_after(line, &["length", "len", "size"]).filter(|_| registers);
        if e.memory.is_some() || e.addr.is_some() {
            e.operation = registers.then_some(Operation::RegMr);
            return Some(f);
        }
    }
    let names = [
        "rdma device:",
        "find best gid index",
        "net/ib : using",
        "using hca",
    ];
    let f = finding(teller(line), false, line);
    (names.iter().any(|word| line.contains(word)) && f.evidence.device.is_some()).then_some(f)
}

fn teller(line: &str) -> Teller {
    let has = |what: &str| line.contains(what);
    if has(" ucx ") || has("ucp_") || has("uct_") {
        Teller::Ucx
    } else if has("rdma_context.cpp")
        || has("rdma_transport")
        || has("transfer_engine")
        || has("mooncake")
    {
        Teller::Mooncake
    } else if has("nccl") {
        Teller::Nccl
    } else if has("libfabric") || has("fi_mr_reg") || has("ofi_") || has("ofi error") {
        Teller::Libfabric
    } else {
        Teller::Program
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Words that the readers of a line look for, in any order.
    fn line() -> impl Strategy<Value = String> {
        let source = include_str!("line.rs");
        let words: Vec<String> = source
            .split('"')
            .skip(1)
            .step_by(2)
            .filter(|word| word.len() < 60 && !word.contains('\n') && !word.contains('{'))
            .map(str::to_owned)
            .collect();
        assert!(words.len() > 80, "{}", words.len());
        prop::collection::vec(prop::sample::select(words), 0..6).prop_map(|words| words.join(" "))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        /// What is passed over at once would have told nothing.
        #[test]
        fn nothing_that_tells_is_passed_over(line in line()) {
            if !may_tell(&line) {
                prop_assert_eq!(told(&line), None);
            }
        }
    }
}
