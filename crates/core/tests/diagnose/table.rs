//! The table: full or not, small pages and their reasons.

use crate::*;

#[test]
fn c02a_small_gpu_pages_fill_the_table() {
    let evidence = Evidence {
        length: Some(4_885_774_336),
        max_mr_size: exact(64 * GIB),
        said_out_of_mr_size: Some(false),
        memory: Some(MemoryKind::Gpu),
        effective_page: Some(PageSize::K4),
        ..erdma(Errno::EIO)
    };
    let diagnosis = check(&evidence, Cause::TableFull, Likely);
    let first = diagnosis.first().unwrap();
    assert_eq!(first.cause, Cause::TableFull);
    assert!(first.fix.contains("newer OFED") && first.fix.contains("64 KiB"));
    check(&evidence, Cause::MaxMrSize, RuledOut);
    let numbers = diagnosis.arithmetic.unwrap();
    assert_eq!(numbers.entries_4k, 1_192_816);
    assert_eq!(numbers.entries_64k, 74_551);
    assert_eq!(numbers.effective, Some((PageSize::K4, 1_192_816)));
}

/// A bound is saved of a refusal only where this holds.
#[test]
fn a_cause_is_decided_for_where_the_evidence_suffices_for_it_and_for_no_other() {
    let mr = Evidence {
        length: Some(64 * GIB),
        effective_page: Some(PageSize::K4),
        backing: Some(BackingPages::Of(PageSize::M2)),
        entries_budget: exact(1 << 20),
        entries_used: Some((0, Some(0))),
        ..erdma(Errno::EIO)
    };
    // Smaller pages are behind the full table, and no other reason.
    check(&mr, Cause::SmallPages, Likely);
    let diagnosis = check(&mr, Cause::TableFull, Likely);
    assert!(diagnosis.decides_for(Cause::TableFull));
    assert!(!diagnosis.decides_for(Cause::SmallPages));
    assert!(!diagnosis.decides_for(Cause::DeviceRefusal));
    // The log knows of another one.
    let silent = Evidence {
        said_command_timeout: Some(true),
        ..mr.clone()
    };
    let diagnosis = check(&silent, Cause::CommandTimeout, Likely);
    assert!(!diagnosis.decides_for(Cause::TableFull));
    // Nothing is known.
    let diagnosis = diagnose(&erdma(Errno::EIO));
    assert!(!diagnosis.decides_for(Cause::TableFull));
}

#[test]
fn the_table_against_its_budget() {
    let mr = |budget: Option<Limit>, used| Evidence {
        length: Some(64 * GIB),
        effective_page: Some(PageSize::M2),
        entries_budget: budget,
        entries_used: used,
        ..erdma(Errno::EIO)
    };
    let nothing = Some((0, Some(0)));
    likely(&mr(exact(32_767), nothing), Cause::TableFull);
    check(&mr(exact(32_768), nothing), Cause::TableFull, RuledOut);
    likely(&mr(exact(40_000), Some((8_000, None))), Cause::TableFull);
    check(
        &mr(exact(40_000), Some((0, None))),
        Cause::TableFull,
        Possible,
    );
    // A budget that a profile assumes rules nothing out.
    check(
        &mr(assumed(40_000_000), nothing),
        Cause::TableFull,
        Possible,
    );
    check(&mr(unlimited(), nothing), Cause::TableFull, Possible);
    check(&mr(None, nothing), Cause::TableFull, Possible);
    // Once it is ruled out, so is what would be behind it.
    let leaked = Evidence {
        others_hold_mrs: Some(true),
        ..mr(exact(32_768), nothing)
    };
    check(&leaked, Cause::LeakedMrs, RuledOut);
}

/// A table whose size is known is what the need is held against, and no report of another one.
#[test]
fn a_known_budget_is_what_counts() {
    let mr = |budget: Option<Limit>| Evidence {
        length: Some(64 * GIB),
        effective_page: Some(PageSize::K4),
        entries_budget: budget,
        ..erdma(Errno::EIO)
    };
    let table = |budget| {
        let diagnosis = diagnose(&mr(budget));
        diagnosis.of(Cause::TableFull).unwrap().clone()
    };
    let said = |list: &[String], text: &str| list.iter().any(|line| line.contains(text));
    let large = table(exact(100_000_000_000));
    assert_eq!(large.standing, Possible, "use by others is not known");
    assert!(
        said(&large.against, "0.017 % of 100,000,000,000"),
        "{large:#?}"
    );
    assert!(!said(&large.evidence_for, "24,903,680"), "{large:#?}");
    let half = table(exact(33_554_431));
    assert_eq!(half.standing, Possible);
    assert!(
        said(&half.evidence_for, "50.0 % of 33,554,431"),
        "{half:#?}"
    );
    let tiny = table(exact(u64::MAX));
    assert!(said(&tiny.against, "less than 0.001 %"), "{tiny:#?}");
    // By the pages of the mapping, where those of the MR are not known.
    let mapping = diagnose(&Evidence {
        effective_page: None,
        backing: Some(BackingPages::Of(PageSize::K4)),
        ..mr(exact(33_554_431))
    });
    let mapping = mapping.of(Cause::TableFull).unwrap();
    assert!(said(&mapping.evidence_for, "50.0 %"), "{mapping:#?}");
    assert_eq!(table(None).standing, Likely);
    assert_eq!(table(assumed(100_000_000_000)).standing, Likely);
}

#[test]
fn small_pages_on_a_device_that_spoke() {
    let mr = |backing, length| Evidence {
        backing: Some(BackingPages::Of(backing)),
        length,
        ..erdma(Errno::EIO)
    };
    likely(&mr(PageSize::K4, None), Cause::TableFull);
    likely(&mr(PageSize::K4, Some(97 * GIB)), Cause::TableFull);
    let fix = diagnose(&mr(PageSize::K4, Some(97 * GIB))).causes[0]
        .fix
        .clone();
    for part in ["49,664", "25,427,968", "plan 97GiB"] {
        assert!(fix.contains(part), "{fix}");
    }
    check(&mr(PageSize::K4, Some(MIB)), Cause::TableFull, Possible);
    check(&mr(PageSize::M2, None), Cause::TableFull, Possible);
    check(
        &mr(PageSize::M2, Some(97 * GIB)),
        Cause::TableFull,
        Possible,
    );
    // The same pages on a family whose errno the kernel shares decide nothing.
    let efa = Evidence {
        family: Some(Family::Efa),
        errno: Some(Errno::ENOMEM),
        ..mr(PageSize::K4, Some(97 * GIB))
    };
    check(&efa, Cause::TableFull, Possible);
}

#[test]
fn small_pages_for_a_reason() {
    let mr = |platform, backing, effective| Evidence {
        length: Some(64 * GIB),
        backing: Some(backing),
        effective_page: effective,
        platform,
        ..erdma(Errno::EIO)
    };
    let huge = BackingPages::Of(PageSize::M2);
    let old = || platform("6.8", vendor(1, 5, 1));
    check(
        &mr(old(), huge, Some(PageSize::K4)),
        Cause::SmallPages,
        Likely,
    );
    check(
        &mr(old(), BackingPages::Huge, Some(PageSize::K4)),
        Cause::SmallPages,
        Likely,
    );
    check(
        &mr(old(), huge, Some(PageSize::M2)),
        Cause::SmallPages,
        RuledOut,
    );
    check(&mr(old(), huge, None), Cause::SmallPages, Possible);
    check(
        &mr(old(), BackingPages::Of(PageSize::K4), None),
        Cause::SmallPages,
        RuledOut,
    );
    check(
        &mr(platform("4.19", Driver::InTree), huge, None),
        Cause::SmallPages,
        Likely,
    );
    let run = |longest| Evidence {
        longest_run: Some(longest),
        ..mr(old(), huge, None)
    };
    check(&run(5 * GIB), Cause::SmallPages, Likely);
    check(&run(GIB), Cause::SmallPages, Possible);
}
