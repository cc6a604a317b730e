//! A kernel's pools, in files.

use super::*;

pub(super) const NODES: [u32; 2] = [0, 1];

/// A host with two nodes whose pools behave as the kernel's do. All of its state is in the files, so that a killed
/// process leaves it as it was. Not in sysfs but beside it: how many pages each node can still give (`/sim/nodeN`), and
/// how many more it can give after compaction (`/sim/packedN`).
#[derive(Clone)]
pub(super) struct Sim(pub(super) Root);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) persistent: u64,
    pub(super) surplus: u64,
    pub(super) used: u64,
}

impl Sim {
    pub(super) fn new(tree: &Tree, persistent: [u64; 2], can_give: [u64; 2]) -> Self {
        let sim = Self(tree.root());
        tree.file("/proc/meminfo", "MemAvailable: 999999999 kB\n");
        tree.file("/proc/sys/vm/compact_memory", "");
        tree.file("/proc/sys/vm/drop_caches", "");
        for node in NODES {
            for file in ["nr", "free", "surplus"] {
                tree.file(&node_file(Some(node), file), "0");
            }
            tree.file(
                &format!("/sim/node{node}"),
                &can_give[node as usize].to_string(),
            );
            tree.file(&format!("/sim/packed{node}"), "0");
        }
        for file in ["nr", "free", "surplus", "resv"] {
            tree.file(&node_file(None, file), "0");
        }
        for node in NODES {
            let persistent = persistent[node as usize];
            sim.set(
                node,
                Node {
                    persistent,
                    ..Node::default()
                },
            );
        }
        sim.process(100);
        sim
    }

    /// The root through which hugemr works: each of its writes is answered by this kernel.
    pub(super) fn root(&self) -> Root {
        let sim = self.clone();
        self.0
            .clone()
            .after_write(move |path, value| sim.kernel(path, value))
    }

    pub(super) fn put(&self, path: &str, value: u64) {
        std::fs::write(self.0.path(path), value.to_string()).unwrap();
    }

    pub(super) fn number(&self, path: &str) -> u64 {
        self.0.number(path).unwrap()
    }

    pub(super) fn get(&self, node: u32) -> Node {
        let count = |file| self.number(&node_file(Some(node), file));
        let surplus = count("surplus");
        Node {
            persistent: self.number(&format!("/sim/persistent{node}")),
            surplus,
            used: self.number(&format!("/sim/persistent{node}")) + surplus - count("free"),
        }
    }

    pub(super) fn set(&self, node: u32, state: Node) {
        let Node {
            persistent,
            surplus,
            used,
        } = state;
        assert!(
            used <= persistent + surplus,
            "pages in use were taken: {state:?}"
        );
        self.put(&format!("/sim/persistent{node}"), persistent);
        self.put(&node_file(Some(node), "nr"), persistent + surplus);
        self.put(&node_file(Some(node), "free"), persistent + surplus - used);
        self.put(&node_file(Some(node), "surplus"), surplus);
        for file in ["nr", "free", "surplus"] {
            let known = |node| self.0.number(&node_file(Some(node), file)).unwrap();
            self.put(&node_file(None, file), NODES.map(known).iter().sum());
        }
    }

    /// What a write does.
    pub(super) fn kernel(&self, path: &str, value: &str) {
        if path == "/proc/sys/vm/compact_memory" {
            for node in NODES {
                let packed = self.number(&format!("/sim/packed{node}"));
                let can = self.number(&format!("/sim/node{node}"));
                self.put(&format!("/sim/node{node}"), can + packed);
                self.put(&format!("/sim/packed{node}"), 0);
            }
        }
        for node in NODES {
            if path == node_file(Some(node), "nr") {
                self.set_persistent(node, value.parse().unwrap());
            }
        }
        assert_ne!(
            path,
            node_file(None, "nr"),
            "node by node where there are nodes"
        );
    }

    /// `set_max_huge_pages`: surplus pages become persistent first, then new ones come as far as there are any; going
    /// down, free pages go, and what is in use becomes surplus.
    pub(super) fn set_persistent(&self, node: u32, target: u64) {
        // The file holds what was written: the old count is the one beside it.
        let old = self.number(&format!("/sim/persistent{node}"));
        let surplus = self.number(&node_file(Some(node), "surplus"));
        let used = old + surplus - self.number(&node_file(Some(node), "free"));
        let mut state = Node {
            persistent: old,
            surplus,
            used,
        };
        let mut can = self.number(&format!("/sim/node{node}"));
        if target >= old {
            let turned = (target - old).min(state.surplus);
            state.surplus -= turned;
            state.persistent += turned;
            let new = (target - state.persistent).min(can);
            can -= new;
            state.persistent += new;
        } else {
            let lower = target.max(used.saturating_sub(surplus));
            can += old - lower;
            state.surplus += lower - target;
            state.persistent = target;
        }
        self.put(&format!("/sim/node{node}"), can);
        self.set(node, state);
    }

    /// Becomes another process; the one before is gone.
    pub(super) fn process(&self, pid: u32) {
        let link = self.0.path("/proc/self");
        if let Ok(old) = std::fs::read_link(&link) {
            std::fs::remove_file(&link).unwrap();
            let old = old.to_str().unwrap().to_owned();
            std::fs::remove_dir_all(self.0.path(&format!("/proc/{old}"))).unwrap();
        }
        let dir = self.0.path(&format!("/proc/{pid}"));
        std::fs::create_dir_all(&dir).unwrap();
        let fields = "S 1 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 4242 1 1";
        std::fs::write(dir.join("stat"), format!("{pid} (hugemr) {fields}\n")).unwrap();
        std::os::unix::fs::symlink(pid.to_string(), link).unwrap();
    }

    pub(super) fn persistent(&self) -> [u64; 2] {
        NODES.map(|node| self.get(node).persistent)
    }
}

pub(super) fn node_file(node: Option<u32>, file: &str) -> String {
    format!("{}/{file}_hugepages", pool_dir(M2, node))
}
