//! On a tree that stands for tracefs, dynamic debug and the kernel's log, with a small part of the kernel behind it.

use std::fs;
use std::num::NonZeroU64;
use std::path::PathBuf;

use super::*;
use crate::root::fake::Tree;
use hugemr_core::prove::DebugLine;
use hugemr_core::size::PageSize;

const TRACING: &str = "/sys/kernel/tracing";
const CONTROL: &str = "/sys/kernel/debug/dynamic_debug/control";
const STRANGER: &str = "p:kprobes/theirs do_sys_open\n";
const LINES: &str = "# filename:lineno [module]function flags format\n\
    d/erdma_verbs.c:735 [erdma]erdma_create_mtt =_ \"create_mtt, size:%lu, force cont:%d\\012\"\n\
    d/erdma_verbs.c:900 [erdma]erdma_reg_user_mr =p \"start:0x%llx, len:%llu, virt:0x%llx, access:0x%x\\012\"\n";

/// A tree and its kernel.
struct Host {
    tree: Tree,
    root: Root,
}

impl Host {
    fn new() -> Self {
        let tree = Tree::new();
        tree.file(&format!("{TRACING}/kprobe_events"), STRANGER);
        tree.file(&format!("{TRACING}/trace"), "");
        tree.file(&format!("{TRACING}/instances/theirs/trace"), "");
        tree.file(CONTROL, LINES);
        tree.file("/dev/kmsg", "6,1,1,-;create_mtt, size:8, force cont:0\n");
        tree.symlink("/proc/self", "41");
        tree.file("/proc/41/stat", &stat(41, 1000));
        tree.file("/run/nothing", "");
        let plain = tree.root();
        let root = tree
            .root()
            .after_write(move |path, value| kernel(&plain, path, value));
        Self { tree, root }
    }

    fn text(&self, path: &str) -> String {
        self.tree.root().read(path).unwrap()
    }

    fn instances(&self) -> Vec<String> {
        self.tree.root().names(&format!("{TRACING}/instances"))
    }

    /// The kernel says something in the middle of a call.
    fn says(&self, line: &str) {
        append(
            self.tree.root().path("/dev/kmsg"),
            &format!("7,2,2,-;{line}\n SUBSYSTEM=infiniband\n"),
        );
    }

    /// The helper returns in this thread.
    fn returns(&self, bytes: u64) {
        for name in self.instances().iter().filter(|name| *name != "theirs") {
            let pipe = self
                .tree
                .root()
                .path(&format!("{TRACING}/instances/{name}/trace_pipe"));
            let head = head();
            append(
                pipe,
                &format!(
                    "{head}: hugemr_page: (a+0x1/0x2 <- ib_umem_find_best_pgsz) page={bytes:#x}\n"
                ),
            );
        }
    }

    /// The process that has switched something on is killed: another one has its number.
    fn kill(&self) {
        self.tree.file("/proc/41/stat", &stat(41, 2000));
        fs::remove_file(self.tree.root().path("/proc/self")).unwrap();
        self.tree.symlink("/proc/self", "42");
        self.tree.file("/proc/42/stat", &stat(42, 3000));
    }

    fn is_as_found(&self) {
        assert_eq!(self.text(&format!("{TRACING}/kprobe_events")), STRANGER);
        assert_eq!(self.instances(), ["theirs"]);
        assert_eq!(self.text(CONTROL), LINES);
        assert_eq!(look(&self.root).unwrap(), []);
    }
}

fn stat(pid: u32, start: u64) -> String {
    format!("{pid} (a) b) S {} {start} 0", vec!["0"; 18].join(" "))
}

fn append(path: PathBuf, text: &str) {
    let old = fs::read_to_string(&path).unwrap();
    fs::write(path, old + text).unwrap();
}

/// Command, thread and time of this thread.
fn head() -> String {
    let id = format!("{:?}", std::thread::current().id());
    let number: String = id.chars().filter(char::is_ascii_digit).collect();
    format!(" hugemr-reg-1-{number}   [000] .....   1.000000")
}

/// What the kernel does behind a write.
fn kernel(root: &Root, path: &str, value: &str) {
    let file = |path: &str, text: &str| {
        let place = root.path(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, text).unwrap();
    };
    let instance = path.strip_prefix(&format!("{TRACING}/instances/"));
    match (instance, value) {
        (Some(name), "mkdir") => {
            for leaf in [
                "trace_pipe",
                "trace_marker",
                &format!("events/{name}/hugemr_page/enable"),
            ] {
                file(&format!("{path}/{leaf}"), "");
            }
        }
        (Some(_), "rmdir") => {
            fs::remove_dir_all(root.path(path)).unwrap();
            fs::create_dir(root.path(path)).unwrap();
        }
        (Some(rest), mark) if rest.ends_with("trace_marker") => {
            let pipe = path.replace("trace_marker", "trace_pipe");
            append(
                root.path(&pipe),
                &format!("{}: tracing_mark_write: {mark}", head()),
            );
        }
        _ if path.ends_with("kprobe_events") => {
            let text = root.read(path).unwrap();
            let gone: Vec<&str> = text
                .lines()
                .filter_map(|line| line.strip_prefix("-:"))
                .collect();
            let stays = |line: &&str| {
                let name = line
                    .split_once(':')
                    .and_then(|(_, rest)| rest.split(' ').next());
                !line.starts_with('-') && !name.is_some_and(|name| gone.contains(&name))
            };
            let kept: String = text
                .lines()
                .filter(stays)
                .map(|line| format!("{line}\n"))
                .collect();
            file(path, &kept);
        }
        _ if path == CONTROL => {
            let text = root.read(path).unwrap();
            let text = text.strip_suffix(value).unwrap_or(&text);
            let words: Vec<&str> = value.split_whitespace().collect();
            let &["module", "erdma", "file", source, "line", number, flag] = words.as_slice()
            else {
                panic!("{value}");
            };
            let place = format!("{}:{number} ", source.trim_matches('"'));
            let (old, new) = if flag == "+p" {
                (" =_ ", " =p ")
            } else {
                (" =p ", " =_ ")
            };
            let switch = |line: &str| match line.starts_with(&place) {
                true => line.replace(old, new),
                false => line.to_owned(),
            };
            let lines: String = text.lines().map(|line| switch(line) + "\n").collect();
            file(path, &lines);
        }
        _ => {}
    }
}

fn chunk(index: u64) -> Chunk {
    let len = NonZeroU64::MIN.get() << 26;
    Chunk {
        index,
        offset: index * len,
        len,
        page: PageSize::M2,
    }
}

#[test]
fn two_threads_are_told_apart_by_the_probe() {
    let host = Host::new();
    let watch = Watch::on(&host.root, How::Kretprobe, "erdma_0", &|| false).unwrap();
    assert!(!watch.wants_one_thread());
    assert!(
        host.text(&format!("{TRACING}/kprobe_events"))
            .starts_with(STRANGER)
    );
    assert!(matches!(
        look(&host.root).unwrap().as_slice(),
        [(_, Held::Probe(_))]
    ));
    host.returns(1 << 12);
    watch.before(&chunk(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            watch.before(&chunk(1));
            host.returns(1 << 30);
            watch.after(&chunk(1));
            host.returns(1 << 12);
        });
    });
    host.returns(2 << 20);
    watch.after(&chunk(0));
    let seen = watch.finish();
    let expected = [
        (0, vec![Sign::Returned(2 << 20)]),
        (1, vec![Sign::Returned(1 << 30)]),
    ];
    assert_eq!(seen.signs, BTreeMap::from(expected));
    assert!(seen.left.is_none() && seen.trouble.is_none(), "{seen:?}");
    host.is_as_found();
}

#[test]
fn debug_lines_are_switched_on_and_off_and_those_that_were_on_stay() {
    let host = Host::new();
    let watch = Watch::on(&host.root, How::DebugLines, "erdma_0", &|| false).unwrap();
    assert!(watch.wants_one_thread());
    assert!(!host.text(CONTROL).contains("=_"));
    host.says("erdma_0: create_mtt, size:16, force cont:0");
    watch.before(&chunk(7));
    host.says("erdma_1: create_mtt, size:24, force cont:0");
    host.says("erdma_0: create_mtt, size:32, force cont:0");
    watch.after(&chunk(7));
    let seen = watch.finish();
    let table = DebugLine::Table {
        bytes: 32,
        contiguous: false,
    };
    assert_eq!(seen.signs, BTreeMap::from([(7, vec![Sign::Line(table)])]));
    host.is_as_found();
}

#[test]
fn what_is_dropped_is_taken_away() {
    for how in [How::Kretprobe, How::DebugLines] {
        let host = Host::new();
        drop(Watch::on(&host.root, how, "erdma_0", &|| false).unwrap());
        host.is_as_found();
    }
}

#[test]
fn what_a_killed_process_has_left_is_taken_away() {
    for how in [How::Kretprobe, How::DebugLines] {
        let host = Host::new();
        std::mem::forget(Watch::on(&host.root, how, "erdma_0", &|| false).unwrap());
        // It still runs.
        assert_eq!(release_stale(&host.root).unwrap(), []);
        host.kill();
        assert_eq!(stale(&host.root).unwrap().len(), 1);
        assert_eq!(release_stale(&host.root).unwrap().len(), 1);
        host.is_as_found();
        assert_eq!(release_stale(&host.root).unwrap(), []);
    }
}

#[test]
fn a_line_stays_on_until_the_last_of_two_has_ended() {
    let host = Host::new();
    let first = Watch::on(&host.root, How::DebugLines, "erdma_0", &|| false).unwrap();
    let second = Watch::on(&host.root, How::DebugLines, "erdma_0", &|| false).unwrap();
    drop(first);
    assert!(!host.text(CONTROL).contains("=_"), "{}", host.text(CONTROL));
    drop(second);
    host.is_as_found();
}

#[test]
fn what_is_missing_is_one_line() {
    let host = Host::new();
    let remove = |path: &str| fs::remove_file(host.tree.root().path(path)).unwrap();
    let why = |how| {
        Watch::on(&host.root, how, "erdma_0", &|| false)
            .unwrap_err()
            .to_string()
    };
    remove(&format!("{TRACING}/kprobe_events"));
    assert!(why(How::Kretprobe).contains("CONFIG_KPROBE_EVENTS"));
    remove(&format!("{TRACING}/trace"));
    assert!(why(How::Kretprobe).contains("mount -t tracefs"));
    host.tree.file(CONTROL, "");
    assert!(why(How::DebugLines).contains("Linux 6.1 has none"));
    remove(CONTROL);
    assert!(why(How::DebugLines).contains("mount -t debugfs"));
    assert_eq!(look(&host.root).unwrap(), []);
}

/// A switch that fails leaves nothing on: here the instance cannot be made.
#[test]
fn a_probe_that_fails_half_way_is_taken_away() {
    let host = Host::new();
    let instances = host.tree.root().path(&format!("{TRACING}/instances"));
    fs::remove_dir_all(&instances).unwrap();
    let error = Watch::on(&host.root, How::Kretprobe, "erdma_0", &|| false).unwrap_err();
    assert!(matches!(error, TraceError::Refused { .. }), "{error}");
    fs::create_dir_all(instances.join("theirs")).unwrap();
    host.is_as_found();
}
