//! The doctor on planted faults: a healthy tree of `/proc` and `/sys`, one fault at a time, and nothing but that fault
//! found, with its fix.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod faults;
mod tree;

use hugemr_core::device::Device;
use hugemr_core::doctor::{
    Answer, Case, Commands, Facts, Finding, Harm, Report, Verbs, examine, from_file,
};
use hugemr_core::fact::{Kind, Limit, Source};
use hugemr_core::host::Driver;
use hugemr_core::plan::{Pages, PlanRequest};
use hugemr_core::size::{GIB, MIB, PageSize};
use hugemr_core::version::BundleVersion;
use hugemr_host::facts::{ProcessId, doctor};

use tree::Tree;

/// A device of which everything is known.
fn device() -> Device {
    let exact = |n| Limit::exact(n, Source::new(Kind::Assumed, "test"));
    Device {
        name: "erdma_0".to_owned(),
        max_mr_size: exact(64 * GIB),
        max_mr: exact(32_768),
        entries: exact(1 << 25),
        used: hugemr_core::device::Used::NOTHING,
        ..hugemr_core::doctor::nameless()
    }
}

/// What the user says of the driver, whose bundle no file tells.
#[derive(Clone, Copy)]
enum Bundle {
    New,
    NotSaid,
}

fn report(facts: &Facts, wish: Option<u64>, bundle: Bundle) -> Report {
    wished(facts, wish.map(PlanRequest::total).as_ref(), bundle)
}

fn wished(facts: &Facts, wish: Option<&PlanRequest>, bundle: Bundle) -> Report {
    let mut host = facts.host();
    if matches!(
        (bundle, host.platform.driver),
        (Bundle::New, Driver::Vendor(_))
    ) {
        host.platform.driver = Driver::Vendor(Some(BundleVersion(1, 5, 7)));
    }
    let device = device();
    examine(&Case {
        facts,
        verbs: &Verbs::NotAsked,
        host: &host,
        device: &device,
        wish,
        commands: &Commands::about("erdma_0"),
    })
}

/// Findings but the fine ones.
fn bad(report: &Report) -> Vec<&Finding> {
    let all = report.findings.iter();
    all.filter(|finding| finding.harm != Harm::Fine).collect()
}

fn codes(report: &Report) -> Vec<&'static str> {
    bad(report).iter().map(|finding| finding.code).collect()
}

#[test]
fn a_healthy_host_has_no_findings() {
    let tree = Tree::healthy();
    let facts = doctor::gather(&tree.root(), ProcessId::Own);
    for wish in [None, Some(4 * GIB)] {
        let report = report(&facts, wish, Bundle::New);
        assert_eq!(codes(&report), Vec::<&str>::new(), "{wish:?}");
        assert_eq!(report.answer, Answer::Yes);
        assert!(report.count(Harm::Fine) > 10);
    }
}

#[test]
fn every_finding_says_where_it_was_seen_and_what_to_do() {
    for fault in faults::all() {
        for finding in bad(&fault.report()) {
            assert!(!finding.seen.is_empty(), "{finding:?}");
            assert!(!finding.fix.is_empty(), "{finding:?}");
            for text in finding
                .seen
                .iter()
                .chain(&finding.fix)
                .chain([&finding.what])
            {
                assert!(!text.contains('\n') && !text.ends_with('.'), "{text:?}");
            }
        }
    }
}

#[test]
fn each_planted_fault_is_found_and_nothing_else() {
    let faults = faults::all();
    assert!(faults.len() >= 30, "{}", faults.len());
    for fault in faults {
        let report = fault.report();
        let found = bad(&report);
        let name = fault.name;
        let [finding] = found.as_slice() else {
            panic!("{name}: found {found:#?}");
        };
        assert_eq!(
            (finding.harm, finding.code),
            (fault.harm, fault.code),
            "{name}"
        );
        let fix = finding.fix.join("\n");
        assert!(fix.contains(fault.fix), "{name}: {fix}");
        let seen = finding.seen.join("\n");
        assert!(seen.contains(fault.seen), "{name}: {seen}");
        let answer = match fault.harm {
            Harm::Block => Answer::No,
            Harm::Unknown if fault.undecided => Answer::Undecided,
            _ => Answer::Yes,
        };
        assert_eq!(report.answer, answer, "{name}");
    }
}

#[test]
fn all_blockers_are_named_not_only_the_first() {
    let tree = Tree::healthy();
    tree.limits("65536", "8388608");
    tree.status("0000000000000000");
    tree.pool(0, 100, 0);
    tree.pool(1, 100, 0);
    tree.file("/sys/fs/cgroup/store/hugetlb.2MB.max", "1048576\n");
    let facts = doctor::gather(&tree.root(), ProcessId::Own);
    let report = report(&facts, Some(4 * GIB), Bundle::New);
    assert_eq!(codes(&report), ["pool_short", "memlock", "cgroup_hugetlb"]);
    assert_eq!(report.answer, Answer::No);
    assert!(report.plan.is_some());
}

/// 128 GiB, 8 GiB of them available: 4 GiB can be offered.
#[test]
fn a_fix_leaves_the_host_its_margin() {
    let tree = Tree::healthy();
    tree.pool(1, 1000, 0);
    tree.meminfo(8 << 20, 0);
    let facts = doctor::gather(&tree.root(), ProcessId::Own);
    let most = 2048 + 1000 + 2048;
    let of = |pages: u64| {
        let report = report(&facts, Some(pages * 2 * MIB), Bundle::New);
        let found = bad(&report);
        (
            codes(&report),
            found[0].fix.join("\n"),
            found[found.len() - 1].so.clone(),
        )
    };
    let (found, fix, _) = of(most);
    assert_eq!(found, ["pool_short"]);
    assert!(fix.contains("sudo hugemr reserve "), "{fix}");
    let (found, fix, so) = of(most + 1);
    assert_eq!(found, ["pool_short", "memory_tight"]);
    assert!(!fix.contains("hugemr reserve"), "{fix}");
    assert!(fix.contains("(--for 10687086592)"), "{fix}");
    assert!(so.contains("less than 4 GiB"), "{so}");
    let (found, fix, _) = of(2048 + 1000 + 4097);
    assert_eq!(found, ["pool_short", "memory_short"]);
    assert!(!fix.contains("hugemr reserve"), "{fix}");
}

/// Transparent huge pages stand in no pool either.
#[test]
fn pages_of_no_pool_are_asked_of_memory_alone() {
    let tree = Tree::healthy();
    tree.pool(1, 0, 0);
    tree.meminfo(8 << 20, 0);
    let facts = doctor::gather(&tree.root(), ProcessId::Own);
    for pages in [Pages::Thp, Pages::Only(PageSize::K4)] {
        let of = |bytes: u64| {
            let request = PlanRequest::total(bytes).pages(pages);
            let report = wished(&facts, Some(&request), Bundle::New);
            (codes(&report), report.answer)
        };
        assert_eq!(of(4 * GIB), (vec![], Answer::Yes));
        assert_eq!(of(4 * GIB + 2 * MIB), (vec!["memory_tight"], Answer::Yes));
        assert_eq!(of(8 * GIB + 2 * MIB), (vec!["memory_short"], Answer::No));
    }
}

#[test]
fn a_wish_beyond_the_device_is_refused_with_the_way_out() {
    let facts = doctor::gather(&Tree::healthy().root(), ProcessId::Own);
    let report = report(&facts, Some(1 << 50), Bundle::New);
    assert_eq!(report.answer, Answer::No);
    assert_eq!(codes(&report)[..2], ["over_budget", "pool_short"]);
    assert!(
        bad(&report)[0]
            .fix
            .iter()
            .any(|fix| fix.contains("would fit"))
    );
    assert!(report.plan.is_none());
}

#[test]
fn an_empty_tree_is_all_unknowns_and_undecided() {
    let tree = Tree::empty();
    let facts = doctor::gather(&tree.root(), ProcessId::Own);
    let report = report(&facts, Some(GIB), Bundle::NotSaid);
    assert_eq!(report.count(Harm::Block), 0, "{:#?}", bad(&report));
    assert_eq!(report.answer, Answer::Undecided);
}

#[test]
fn facts_of_a_file_keep_the_process_of_here_in_the_same_boot_only() {
    let tree = Tree::healthy();
    let file = doctor::gather(&tree.root(), ProcessId::Own);
    let mut here = file.clone();
    here.process.name = Some("here".to_owned());
    here.pools.global.clear();

    let (facts, findings) = from_file(file.clone(), here.clone());
    assert_eq!(findings, []);
    assert_eq!(facts.process.name.as_deref(), Some("here"));
    assert_eq!(facts.pools, file.pools);

    here.taken.seconds = file.taken.seconds.map(|s| s + 25 * 3600);
    let (_, findings) = from_file(file.clone(), here.clone());
    assert_eq!(findings[0].code, "facts_are_old");
    assert!(findings[0].what.contains("25 h"), "{findings:?}");

    here.taken = file.taken.clone();
    here.taken.boot_id = Some("another".to_owned());
    let (facts, findings) = from_file(file.clone(), here.clone());
    assert_eq!(findings[0].code, "facts_of_another_boot");
    assert_eq!(facts.process, file.process);

    here.taken = hugemr_core::doctor::Taken::default();
    let (facts, findings) = from_file(file, here);
    assert_eq!(findings.len(), 2);
    assert!(findings.iter().all(|f| f.harm == Harm::Unknown));
    assert_eq!(facts.process.name.as_deref(), Some("here"));
}
