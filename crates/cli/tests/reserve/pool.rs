//! What is added and given back, by one process and by several.

use crate::*;

#[test]
fn bad_usage_is_said() {
    for (words, said) in [
        (&["reserve", "0"][..], "at least one page"),
        (
            &["reserve", "1GiB", "--node", "0", "--spread"],
            "cannot be used with",
        ),
        (&["reserve"], "SIZE"),
        (
            &["register", "1GiB", "--device", "sim:erdma", "--reserve"],
            "--memory real",
        ),
    ] {
        let out = output(&mut hugemr(words));
        assert_eq!(out.status.code(), Some(2), "{words:?}");
        assert!(text(&out).contains(said), "{words:?}: {}", text(&out));
    }
}

/// More than any memory: what could be reserved is said, and the size for which that is enough.
#[test]
fn what_cannot_be_reserved_names_the_size_that_could() {
    let words = "register 60TiB --device sim:ecs.r8a.32xlarge --memory real --reserve --pages 2MiB";
    let words: Vec<&str> = words.split(' ').collect();
    let out = output(&mut hugemr(&words));
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(
        said.contains("huge pages of 2 MiB at most, free ones among them ("),
        "{said}"
    );
    let none = said.contains(" 0 huge pages of 2 MiB at most");
    let way = said.contains(" would fit: hugemr register ") && said.contains(" --reserve");
    assert!(none != way, "{said}");
}

/// What is offered leaves the host its margin, of 512 MiB at least; what is asked for beyond that is told as a risk. Memory
/// comes and goes meanwhile, so half of the margin is looked for, and not only once.
#[test]
fn what_is_offered_leaves_a_margin_and_what_is_asked_for_has_its_risk() {
    const HALF: u64 = 256 << 20;
    if Pools::read(&Root::real()).of(PageSize::M2).is_none() {
        return;
    }
    // Bytes for which the pool is enough, were it raised by all the memory that is available but so much.
    let all_but = |left: u64| {
        let memory = hugemr_host::facts::Memory::read(&Root::real()).available;
        (available() << 21) + memory.unwrap().saturating_sub(left)
    };
    let offered = || {
        let words = "register 60TiB --device sim:ecs.r8a.32xlarge --memory real --reserve --pages 2MiB --json";
        let words: Vec<&str> = words.split(' ').collect();
        let document = json(&words, 1);
        let pages = document["reservable"]["pages"]["count"].as_u64();
        pages.unwrap_or(0) << 21 <= all_but(HALF)
    };
    assert!((0..5).any(|_| offered()));
    let asked = |left: u64| {
        let size = format!("{}MiB", all_but(left) >> 20);
        let out = output(&mut hugemr(&["reserve", &size, "--dry-run"]));
        let document = output(&mut hugemr(&["reserve", &size, "--dry-run", "--json"]));
        let risk = text(&document).contains(r#""risk": "of "#);
        out.status.code() == Some(0) && text(&out).contains("risk: of ") == risk && risk
    };
    assert!((0..5).any(|_| asked(HALF)));
    assert!(!asked(all_but(0) / 2), "half of the memory is no risk");
}

#[test]
#[ignore = "needs huge pages and root"]
fn the_pool_is_raised_used_and_lowered_by_exactly_what_was_added() {
    let _pools = lock();
    let before = persistent();
    let size = beyond_the_pool(32);
    let words = [&["register", &size, "--reserve", "--json"][..], &SIM].concat();
    let document = json(&words, 0);
    assert_eq!(pages(&document["reserved"]), 32, "{document}");
    assert_eq!(
        document["reserved"],
        swapped(&document["released"]["given_back"])
    );
    assert_eq!(document["as_planned"], true);
    assert_eq!(document["entries"]["value"], available() + 32);
    is_as_before(before, "register --reserve");

    let out = output(hugemr(&["register", &size, "--reserve"]).args(SIM));
    let said = text(&out);
    assert!(
        said.contains("reserve    32 pages of 2 MiB (64 MiB) added: node0 "),
        "{said}"
    );
    assert!(
        said.contains("pools: 32 pages of 2 MiB (64 MiB) given back: node0 "),
        "{said}"
    );
    is_as_before(before, "register --reserve");

    // Without the flag nothing is touched, and the answer is no.
    let out = output(hugemr(&["register", &size]).args(SIM));
    assert_eq!(out.status.code(), Some(1));
    assert!(
        text(&out).contains("sudo hugemr reserve "),
        "{}",
        text(&out)
    );
    is_as_before(before, "register");
}

/// The same changes, there and back.
fn swapped(changes: &Value) -> Value {
    let mut changes = changes.clone();
    for change in changes.as_array_mut().unwrap() {
        let (before, after) = (change["before"].clone(), change["after"].clone());
        (change["before"], change["after"]) = (after, before);
    }
    changes
}

#[test]
#[ignore = "needs huge pages and root"]
fn reserve_is_idempotent_and_release_gives_back_the_same() {
    let _pools = lock();
    // What is kept already belongs to somebody.
    let kept = json(&["release", "--dry-run", "--json"], 0);
    assert_eq!(
        pages(&kept["pools"]),
        0,
        "hugemr reserve was used here: {kept}"
    );
    let before = persistent();
    let size = beyond_the_pool(8);
    let dry = json(&["reserve", &size, "--dry-run", "--persist", "--json"], 0);
    assert_eq!(
        (&dry["changed"], pages(&dry["pools"])),
        (&Value::Bool(false), 8)
    );
    let line = dry["persist"]["boot_line"].as_str().unwrap();
    assert_eq!(line, format!("hugepagesz=2M hugepages={}", before + 8));
    assert_eq!(persistent(), before, "a dry run changes nothing");

    let first = json(&["reserve", &size, "--json"], 0);
    assert_eq!(
        (&first["changed"], pages(&first["pools"])),
        (&Value::Bool(true), 8)
    );
    assert_eq!(first["available"], first["pages"]);
    assert_eq!(persistent(), before + 8);
    let second = json(&["reserve", &size, "--json"], 0);
    assert_eq!(
        (&second["changed"], pages(&second["pools"])),
        (&Value::Bool(false), 0)
    );
    assert_eq!(persistent(), before + 8);
    let out = output(&mut hugemr(&["reserve", &size]));
    assert!(text(&out).starts_with("nothing to do: "), "{}", text(&out));

    let dry = json(&["release", "--dry-run", "--json"], 0);
    assert_eq!(pages(&dry["pools"]), 8);
    assert_eq!(persistent(), before + 8);
    let back = json(&["release", "--json"], 0);
    assert_eq!(
        (&back["changed"], pages(&back["pools"])),
        (&Value::Bool(true), 8)
    );
    is_as_before(before, "release");
    let again = json(&["release", "--json"], 0);
    assert_eq!(
        (&again["changed"], pages(&again["pools"])),
        (&Value::Bool(false), 0)
    );

    let out = output(&mut hugemr(&["reserve", &size]));
    let said = text(&out);
    assert!(said.starts_with("changing, for "), "{said}");
    let change = said.find("/nr_hugepages").unwrap();
    assert!(
        change < said.find("\nreserved: 8 pages").unwrap(),
        "the change first: {said}"
    );
    assert!(said.contains("give back: sudo hugemr release"), "{said}");
    assert!(text(&output(&mut hugemr(&["release"]))).starts_with("released: 8 pages"));
    is_as_before(before, "release");
}

#[test]
#[ignore = "needs huge pages and root"]
fn pages_in_use_stay_with_their_user() {
    let _pools = lock();
    let before = persistent();
    let size = beyond_the_pool(16);
    json(&["reserve", &size, "--json"], 0);
    // Enough is there: it adds nothing, and maps all of it.
    let mut user = holding(0);
    assert_eq!(added_by(user.id()), 0);
    let back = json(&["release", "--json"], 0);
    assert_eq!(
        (pages(&back["pools"]), &back["in_use"]),
        (16, &Value::from(16))
    );
    is_as_before(before, "release");
    let total = || {
        let pool = *Pools::read(&Root::real()).of(PageSize::M2).unwrap();
        pool.total.unwrap()
    };
    assert_eq!(total(), before + 16, "the user has its pages");
    signal(&user, "INT");
    assert!(user.wait().unwrap().success());
    assert_eq!(
        total(),
        before,
        "and the kernel took them when they were free"
    );
}

#[test]
#[ignore = "needs huge pages and root"]
fn two_processes_and_an_outside_writer_in_any_order() {
    let _pools = lock();
    let before = persistent();
    // Who ends when: the holder of 8, that of 16, and the outside writer; each by another way.
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        outside(3);
        let first = holding(8);
        outside(2);
        let second = holding(16);
        assert_eq!((added_by(first.id()), added_by(second.id())), (8, 16));
        assert_eq!(persistent(), before + 5 + 8 + 16);
        let mut left = before + 5 + 8 + 16;
        let mut children = [first, second];
        for who in order {
            match who {
                0 => {
                    signal(&children[0], "INT");
                    assert!(children[0].wait().unwrap().success());
                    left -= 8;
                }
                1 => {
                    signal(&children[1], "KILL");
                    children[1].wait().unwrap();
                    let stale = json(&["release", "--stale", "--json"], 0);
                    assert_eq!(pages(&stale["pools"]), 16);
                    left -= 16;
                }
                _ => {
                    outside(-5);
                    left -= 5;
                }
            }
            is_as_before(left, &format!("{order:?}, after {who}"));
        }
        is_as_before(before, &format!("{order:?}"));
    }
}
