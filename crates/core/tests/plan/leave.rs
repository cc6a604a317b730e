//! What others have of the table, and are to have.

use crate::*;

#[test]
fn others_and_what_is_to_be_left_come_off_the_budget() {
    let mut request = on(64 * GIB, PageSize::K4);
    fits(&request, &device(), &article());
    request.leave = Leave::PerCent(50);
    assert_eq!(
        fits(
            &request,
            &{
                let mut d = device();
                d.entries = exact(33_554_432);
                d
            },
            &article()
        )
        .verdict,
        Verdict::Fits
    );
    assert_eq!(
        refused(&request, &device(), &article()).code,
        Code::OverBudget
    );
    request.leave = Leave::Nothing;
    // 64 GiB at 4 KiB leave 16,777,215 entries; 1 TiB of GPU buffers at 64 KiB take one more.
    request.others = vec![OtherUse {
        bytes: TIB,
        page: PageSize::K64,
    }];
    assert_eq!(
        refused(&request, &device(), &article()).code,
        Code::OverBudget
    );
    request.others[0].bytes -= 65536;
    fits(&request, &device(), &article());
}

/// Whatever is to be left free, in numbers or per cent: where that alone is in the way, the refusal says so and how much can be
/// left, and that is taken.
#[test]
fn a_refusal_by_what_is_left_says_how_much_could_be() {
    for (bytes, leave, kept, most) in [
        (
            896 * GIB,
            Leave::PerCent(100),
            "--leave 100% keeps 33,554,431: 0 are left",
            33_095_679,
        ),
        (
            896 * GIB,
            Leave::Entries(33_554_430),
            "--leave 33554430 keeps 33,554,430: 1 is left",
            33_095_679,
        ),
        (
            60 * TIB,
            Leave::PerCent(7),
            "--leave 7% keeps 2,348,811: 31,205,620 are left",
            2_097_151,
        ),
    ] {
        let request = PlanRequest {
            leave,
            ..on(bytes, PageSize::M2)
        };
        let refusal = refused(&request, &device(), &article());
        assert_eq!(refusal.code, Code::OverBudget);
        assert!(refusal.text.contains(kept), "{refusal}");
        assert!(refusal.text.contains("has 33,554,431 free"), "{refusal}");
        assert_eq!(refusal.ways_out[0], WayOut::Leave(most));
        let request = refusal.ways_out[0].applied(&request).unwrap();
        assert_eq!(fits(&request, &device(), &article()).verdict, Verdict::Fits);
    }
    // Where the table is too small anyway, nothing that could be left leads out.
    let request = PlanRequest {
        leave: Leave::PerCent(50),
        ..on(896 * GIB, PageSize::K4)
    };
    let refusal = refused(&request, &device(), &article());
    let leave = |way: &WayOut| matches!(way, WayOut::Leave(_));
    assert!(!refusal.ways_out.iter().any(leave), "{refusal}");
}

/// With just as many entries as are needed, none is left, and the flag is dropped.
#[test]
fn nothing_can_be_left() {
    let small = Device {
        entries: exact(512),
        ..device()
    };
    let request = PlanRequest {
        leave: Leave::Entries(1),
        ..on(GIB, PageSize::M2)
    };
    let refusal = refused(&request, &small, &article());
    assert_eq!(refusal.ways_out[0], WayOut::Leave(0));
    let request = refusal.ways_out[0].applied(&request).unwrap();
    assert_eq!(request.leave, Leave::Nothing);
}
