//! `inspect` on processes of this machine.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::{document, hugemr, keys, text};

/// This test binary again, with 8 MiB of memory of which it touches every page.
struct Holder(Child);

impl Holder {
    fn start() -> (Self, u64) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "inspect::holder", "--nocapture"])
            .env("HUGEMR_TEST_HOLD", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let told = lines
            .map_while(Result::ok)
            .find_map(|line| line.split_once("holding ").map(|(_, at)| at.to_owned()))
            .unwrap();
        (Self(child), told.parse().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

const HELD: usize = 8 << 20;

/// The other process. As a test of its own it does nothing.
#[test]
fn holder() {
    if std::env::var_os("HUGEMR_TEST_HOLD").is_none() {
        return;
    }
    let memory = vec![7u8; HELD];
    println!("holding {}", memory.as_ptr().addr());
    let mut line = String::new();
    let _end = std::io::stdin().read_line(&mut line);
    assert_eq!(memory[HELD - 1], 7);
}

#[test]
fn a_mapping_that_is_known_is_found() {
    let (holder, addr) = Holder::start();
    let out = hugemr([
        "inspect",
        "--pid",
        &holder.pid(),
        "--json",
        "--driver",
        "in-tree",
        "--kernel",
        "6.12.40",
    ]);
    let document = document(&out, 0);
    assert_eq!(
        keys(&document),
        [
            "schema",
            "pid",
            "name",
            "pinned",
            "platform",
            "mappings",
            "other_mappings",
            "total"
        ]
    );
    assert_eq!(document["schema"], "hugemr/inspect/1");
    let mappings = document["mappings"].as_array().unwrap();
    let hex = |v: &Value| u64::from_str_radix(&v.as_str().unwrap()[2..], 16).unwrap();
    let found = mappings
        .iter()
        .find(|m| (hex(&m["addr"])..hex(&m["addr"]) + m["len"].as_u64().unwrap()).contains(&addr))
        .unwrap();
    assert!(found["len"].as_u64().unwrap() >= HELD as u64);
    assert!(found["present"].as_u64().unwrap() >= HELD as u64);
    assert_eq!(
        (&found["hugetlb"], &found["shared"]),
        (&false.into(), &false.into())
    );
    let least = |v: &Value| v.as_u64().or_else(|| v["min"].as_u64()).unwrap();
    let pages = least(&found["mr"]["entries"]);
    assert!(
        pages >= 1 && pages <= found["len"].as_u64().unwrap() / 4096,
        "{found}"
    );
    let sum: u64 = mappings.iter().map(|m| m["len"].as_u64().unwrap()).sum();
    assert_eq!(document["total"]["bytes"], sum);
    let entries: u64 = mappings.iter().map(|m| least(&m["mr"]["entries"])).sum();
    assert_eq!(least(&document["total"]["entries"]), entries);

    let text = text(&hugemr(["inspect", "--pid", &holder.pid()]), 0);
    assert!(text.contains("mappings that could be MRs"), "{text}");
    assert!(text.contains(" at 2 MiB (MRs of at most 64 GiB)"), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 120),
        "{text}"
    );
}

#[test]
fn a_process_that_has_gone_is_a_refusal_of_the_system() {
    let (holder, _) = Holder::start();
    let pid = holder.pid();
    drop(holder);
    let out = hugemr(["inspect", "--pid", &pid]);
    text(&out, 3);
    assert!(String::from_utf8_lossy(&out.stderr).contains(&format!("there is no process {pid}")));
    text(&hugemr(["inspect"]), 2);
}
