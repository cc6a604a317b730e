//! Whatever is read, nothing is lost, and what is kept is bounded.

use proptest::prelude::*;

use super::*;

#[test]
fn what_is_not_understood_stays_so() {
    let noise = "GET /healthz 200\n\u{fffd}\u{0}\u{7f}PNG\nUCX INFO version 1.13\n[ERROR] disk full: No space left on device";
    let log = read(noise);
    assert_eq!(log.counts(), (4, 0, 0));
    assert!(log.failures().is_empty());
    let long = format!(
        "{} ibv_reg_mr failed: Bad address",
        "x".repeat(LONGEST_LINE)
    );
    assert_eq!(scan(&long), None, "beyond the part that is read");
}

#[test]
fn the_kept_amount_is_bounded() {
    let mut log = Log::default();
    for i in 0..10_000u64 {
        log.read(&format!(
            "ibv_reg_mr({:#x}, length={}) failed: errno {} on erdma_{i}",
            i << 20,
            i + 1,
            i % 133 + 1
        ));
        log.read(&format!("ibv_dereg_mr failed: errno {}", i % 133 + 1));
    }
    assert_eq!(log.failures.len(), MOST_FAILURES);
    assert!(log.ranges.len() <= MOST_RANGES && log.families.len() <= Family::ALL.len());
    assert!(log.counts().2 > 0);
}

/// A failure is in one of the lists, or counted: also where the errno is told in a language that is not known.
#[test]
fn failures_without_a_readable_errno_are_not_lost() {
    let log = read(
        "ibv_reg_mr failed: Erreur inconnue\nibv_reg_mr failed: Input/output error\nibv_reg_mr failed: Zu viele",
    );
    let failures = log.failures();
    assert_eq!(failures.len(), 1);
    assert_eq!((failures[0].line, failures[0].count), (2, 1));
    let without = WithoutErrno {
        count: 2,
        lines: vec![1, 3],
    };
    assert_eq!(log.without_errno(), without);
    // Those of another operation, and all of them where none has an errno, are in the list itself.
    let log = read("ibv_reg_mr failed: Zu viele\nibv_dereg_mr failed: Input/output error");
    assert_eq!(log.failures().len(), 2);
    assert_eq!(log.without_errno(), WithoutErrno::default());
    // The lines are bounded, the count is not.
    let mut many = Log::default();
    many.read("ibv_reg_mr failed: Input/output error");
    for _ in 0..1000 {
        many.read("ibv_reg_mr failed: Zu viele");
    }
    let without = many.without_errno();
    assert_eq!((without.count, without.lines.len()), (1000, MOST_LINES));
}

proptest! {
    /// Each line that tells something is counted once.
    #[test]
    fn the_counts_add_up(lines in prop::collection::vec(prop::sample::select(vec![
        "ibv_reg_mr failed: Zu viele",
        "ibv_reg_mr failed: Input/output error",
        "ibv_reg_mr failed: Bad address",
        "mlx5_0: ibv_reg_mr failed: Zu viele",
        "  length 4096, errno 12",
        "ibv_dereg_mr failed: Zu viele",
        "RDMA device: erdma_0, LID: 1",
        "Couldn't load driver 'erdma'",
        "nothing",
    ]), 0..20)) {
        let log = read(&lines.join("\n"));
        let (_, understood, dropped) = log.counts();
        let kept: u64 = log.failures().iter().map(|f| f.count).sum();
        prop_assert_eq!(understood, log.facts() + kept + log.without_errno().count + dropped);
    }
}

/// Pieces that the scanners look for, in any order, and any text between.
fn scrambled() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "ibv_reg_mr(",
            "ibv_reg_mr failed: ",
            "Unable to register memory 0x7f724fa00000 length ",
            "failed: ",
            "Bad address",
            "[",
            "0x",
            "0x7f724fa00000",
            "length=",
            "..",
            "errno ",
            "-12",
            ")",
            "Out of mr size:",
            "max ",
            "page_size:",
            "mtt_nents:",
            "UCX ",
            "mem_type bit ",
            "(current",
            "ulimit -l",
            "create_mtt, size:",
            "force cont:0",
            "failed to deregister MR 0x",
            ":",
            "erdma_0",
            "é",
            "ǅ",
            "İ",
        ])
        .prop_map(str::to_owned),
        any::<String>(),
        any::<u64>().prop_map(|n| n.to_string()),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_line_is_read_without_harm(lines in prop::collection::vec(scrambled(), 0..8)) {
        let mut log = Log::default();
        for line in &lines {
            if let Some(found) = scan(line) {
                prop_assert_eq!(found.evidence.failed == Some(true), found.is_failure);
            }
            log.read(line);
        }
        for failure in log.failures() {
            prop_assert!((1..=lines.len() as u64).contains(&failure.line));
            let _ = diagnose(&failure.evidence);
        }
    }
}
