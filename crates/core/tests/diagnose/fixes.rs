//! What is advised, and the commands in it.

use crate::*;

/// No fix asks for what is there already, and none speaks of another family's software.
#[test]
fn fixes_fit_what_is_known() {
    let fix = |evidence: &Evidence, cause| {
        let diagnosis = diagnose(evidence);
        diagnosis.of(cause).unwrap().fix.clone()
    };
    let mr = |length, page| Evidence {
        length: Some(length),
        effective_page: page,
        ..erdma(Errno::EIO)
    };
    let table = |length, page| fix(&mr(length, page), Cause::TableFull);
    let huge = table(64 * GIB, Some(PageSize::M2));
    assert!(
        huge.contains("free other MRs") && huge.contains("1 GiB pages"),
        "{huge}"
    );
    let large = diagnose(&mr(64 * GIB, Some(PageSize::M2)));
    let small_pages = large.of(Cause::SmallPages).unwrap();
    assert_eq!(small_pages.against, ["the MR got 2 MiB pages"]);
    for text in [
        table(64 * GIB, Some(PageSize::G1)),
        table(MIB, Some(PageSize::M2)),
    ] {
        assert_eq!(text, "free other MRs of the device");
    }
    for length in [0, 4096] {
        let text = table(length, None);
        assert!(text.contains("save no entries"), "{text}");
        assert!(!text.contains("hugemr plan"), "{text}");
    }
    let text = table(64 * GIB, Some(PageSize::K64));
    assert!(text.contains("1,048,576 at 64 KiB"), "{text}");
    for family in Family::ALL {
        let evidence = Evidence {
            length: Some(64 * GIB),
            ..Evidence::of_errno(family.dialect().over_budget, family)
        };
        let text = fix(&evidence, Cause::SmallPages);
        assert_eq!(text.contains("eRDMA"), family == Family::Erdma, "{text}");
        let diagnosis = diagnose(&evidence);
        let place = |cause| diagnosis.causes.iter().position(|one| one.cause == cause);
        assert!(
            place(Cause::SmallPages) > place(Cause::TableFull),
            "{diagnosis:#?}"
        );
        // An MR that does not meet the defect at 4 GiB is not to be made shorter.
        let text = fix(
            &Evidence {
                length: Some(GIB),
                ..evidence
            },
            Cause::SmallPages,
        );
        assert!(!text.contains("less than 4 GiB"), "{text}");
    }
}

/// The pages that are advised are those with which the need is within the table, where its size is known.
#[test]
fn the_advised_pages_fit_the_budget() {
    for (most, advised) in [
        (
            33_554_431,
            "2 MiB huge pages: 32,768 entries instead of 16,777,216 at 4 KiB",
        ),
        (
            1000,
            "1 GiB huge pages: 64 entries instead of 16,777,216 at 4 KiB",
        ),
        (10, "fewer bytes"),
    ] {
        let evidence = Evidence {
            length: Some(64 * GIB),
            effective_page: Some(PageSize::K4),
            entries_budget: exact(most),
            entries_used: Some((most, Some(most))),
            ..erdma(Errno::EIO)
        };
        let diagnosis = diagnose(&evidence);
        let full = diagnosis
            .causes
            .iter()
            .find(|one| one.cause == Cause::TableFull);
        let fix = &full.unwrap().fix;
        assert!(fix.contains(advised), "{most}: {fix}");
    }
}

/// Every command of hugemr has the device and the limits file that are known.
#[test]
fn commands_have_the_device_and_the_limits() {
    for (errno, length, page) in [
        (Some(Errno::EIO), 64 * GIB, Some(PageSize::K4)),
        (Some(Errno::EIO), 64 * GIB, None),
        (Some(Errno::EINVAL), 65 * GIB, None),
        (Some(Errno::EINVAL), GIB, None),
        (None, 64 * GIB, None),
    ] {
        let evidence = Evidence {
            errno,
            length: Some(length),
            effective_page: page,
            max_mr_size: assumed(64 * GIB),
            device: Some("erdma_7".to_owned()),
            stated: " --limits /x/y.toml".to_owned(),
            ..erdma(Errno::EIO)
        };
        let diagnosis = diagnose(&evidence);
        let texts = diagnosis
            .causes
            .iter()
            .flat_map(|one| [Some(&one.fix), one.decide.as_ref()]);
        let mut found = 0;
        for text in texts
            .flatten()
            .filter(|text| text.contains("hugemr plan ") && !text.contains("hugemr plan cuts"))
        {
            found += 1;
            assert!(
                text.contains("GiB --device erdma_7 --limits /x/y.toml"),
                "{text}"
            );
        }
        assert!(found > 0, "{diagnosis:#?}");
    }
}
