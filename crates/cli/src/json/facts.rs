//! Facts of a host as a document: schema `hugemr/facts/1`. One walk over the fields both writes and reads, so that what
//! is written is what is read. What is not known is `null`, and a field that is missing is not known either.

use hugemr_core::doctor::{
    Buddy, Candidate, Facts, Function, HugetlbLimit, Iommu, Mount, PoolFacts, Port, ProcessFacts,
    RdmaDevice, Rlimit, Shm, Visible,
};
use hugemr_core::host::{HugePool, Node};
use hugemr_core::size::PageSize;
use serde_json::{Value, json};

use super::walk::Walk;

const SCHEMA: &str = "hugemr/facts/1";

/// The document.
pub(crate) fn facts(facts: &Facts) -> Value {
    let mut facts = facts.clone();
    let mut walk = Walk::writing();
    all(&mut facts, &mut walk);
    let mut document = json!({ "schema": SCHEMA, "hugemr": env!("CARGO_PKG_VERSION") });
    if let (Value::Object(document), Value::Object(fields)) = (&mut document, walk.finish().0) {
        document.extend(fields);
    }
    document
}

/// The facts of a document.
pub(crate) fn read(document: Value) -> Result<Facts, String> {
    match document.get("schema").and_then(Value::as_str) {
        Some(SCHEMA) => {}
        Some(other) => return Err(format!("schema {other:?}, and not {SCHEMA:?}")),
        None => return Err(format!("no document of schema {SCHEMA:?}")),
    }
    let mut facts = Facts::default();
    let mut walk = Walk::reading(document);
    all(&mut facts, &mut walk);
    walk.finish().1.map_or(Ok(facts), Err)
}

fn all(facts: &mut Facts, w: &mut Walk) {
    w.part("taken", &mut facts.taken, |taken, w| {
        w.number("seconds", &mut taken.seconds);
        w.text("boot_id", &mut taken.boot_id);
        w.text("host", &mut taken.host);
    });
    w.part("kernel", &mut facts.kernel, |kernel, w| {
        w.text("release", &mut kernel.release);
        w.text("build", &mut kernel.build);
        w.text("signature", &mut kernel.signature);
        w.maybe_list("boot", &mut kernel.boot, |option, w| w.itself(option));
        w.text("lockdown", &mut kernel.lockdown);
    });
    w.part("driver", &mut facts.driver, |driver, w| {
        w.flag("loaded", &mut driver.loaded);
        w.flag("vendor", &mut driver.vendor);
        w.flag("compat_mode", &mut driver.compat_mode);
        w.flag("mtt_va", &mut driver.mtt_va);
        w.list(
            "candidates",
            &mut driver.candidates,
            |c: &mut Candidate, w| {
                w.must_text("source", &mut c.source);
                w.must_text("text", &mut c.text);
            },
        );
    });
    w.maybe_list("functions", &mut facts.functions, function);
    w.maybe_list("devices", &mut facts.devices, device);
    w.part("pools", &mut facts.pools, |pools, w| {
        w.or_default("visible", &mut pools.visible);
        w.list_from("global", &mut pools.global, no_pool, pool);
        w.list("nodes", &mut pools.nodes, node);
        let none = || (PageSize::K4, 0);
        w.list_from("stale", &mut pools.stale, none, |(page, pages), w| {
            w.page("page", page);
            w.must_number("pages", pages);
        });
        w.text("ledger", &mut pools.ledger);
    });
    w.part("memory", &mut facts.memory, |memory, w| {
        w.number("total", &mut memory.total);
        w.number("free", &mut memory.free);
        w.number("available", &mut memory.available);
        w.number("cma_total", &mut memory.cma_total);
        w.list("buddy", &mut memory.buddy, |zone: &mut Buddy, w| {
            w.must_number("node", &mut zone.node);
            w.must_text("zone", &mut zone.zone);
            w.list("blocks", &mut zone.blocks, |n, w| w.itself(n));
        });
        w.number("base_page", &mut memory.base_page);
        w.number("max_map_count", &mut memory.max_map_count);
        w.text("thp", &mut memory.thp);
    });
    w.part("tracing", &mut facts.tracing, |tracing, w| {
        w.word("kprobes", &mut tracing.kprobes, &Visible::NAMES);
        w.word("dynamic_debug", &mut tracing.dynamic_debug, &Visible::NAMES);
    });
    w.part("process", &mut facts.process, process);
}

fn function(function: &mut Function, w: &mut Walk) {
    w.must_text("address", &mut function.address);
    w.must_flag("erdma", &mut function.erdma);
    w.number("node", &mut function.node);
    w.text("driver", &mut function.driver);
    w.word("iommu", &mut function.iommu, &Iommu::NAMES);
}

fn device(device: &mut RdmaDevice, w: &mut Walk) {
    w.must_text("name", &mut device.name);
    w.text("uverbs", &mut device.uverbs);
    w.flag("char_device", &mut device.char_device);
    w.list("ports", &mut device.ports, |port: &mut Port, w| {
        w.must_number("number", &mut port.number);
        w.text("state", &mut port.state);
    });
}

fn no_pool() -> PoolFacts {
    PoolFacts {
        page: PageSize::K4,
        total: None,
        free: None,
        reserved: None,
    }
}

fn pool(pool: &mut PoolFacts, w: &mut Walk) {
    w.page("page", &mut pool.page);
    w.number("total", &mut pool.total);
    w.number("free", &mut pool.free);
    w.number("reserved", &mut pool.reserved);
}

fn node(node: &mut Node, w: &mut Walk) {
    let none = || HugePool {
        page: PageSize::K4,
        total: 0,
        free: 0,
        surplus: 0,
    };
    w.must_number("id", &mut node.id);
    w.list("cpus", &mut node.cpus, |cpu, w| w.itself(cpu));
    w.must_number("mem_free", &mut node.mem_free);
    w.list_from("pools", &mut node.pools, none, |pool: &mut HugePool, w| {
        w.page("page", &mut pool.page);
        w.must_number("total", &mut pool.total);
        w.must_number("free", &mut pool.free);
        w.must_number("surplus", &mut pool.surplus);
    });
}

fn rlimit(limit: &mut Rlimit, w: &mut Walk) {
    w.unlimited("soft", &mut limit.soft);
    w.unlimited("hard", &mut limit.hard);
}

fn process(process: &mut ProcessFacts, w: &mut Walk) {
    let none = || HugetlbLimit {
        page: PageSize::K4,
        max: 0,
        used: None,
        at_mmap: false,
        file: String::new(),
    };
    w.number("pid", &mut process.pid);
    w.text("name", &mut process.name);
    w.text("parent", &mut process.parent);
    w.text("unit", &mut process.unit);
    w.flag("container", &mut process.container);
    w.maybe("memlock", &mut process.memlock, rlimit);
    w.maybe("address_space", &mut process.address_space, rlimit);
    w.flag("cap_ipc_lock", &mut process.cap_ipc_lock);
    w.flag("initial_user_ns", &mut process.initial_user_ns);
    w.number("pinned", &mut process.pinned);
    w.number("virtual_size", &mut process.virtual_size);
    w.number("maps", &mut process.maps);
    w.list_from(
        "hugetlb",
        &mut process.hugetlb,
        none,
        |limit: &mut HugetlbLimit, w| {
            w.page("page", &mut limit.page);
            w.must_number("max", &mut limit.max);
            w.number("used", &mut limit.used);
            w.must_flag("at_mmap", &mut limit.at_mmap);
            w.must_text("file", &mut limit.file);
        },
    );
    w.number("memory_max", &mut process.memory_max);
    w.flag("memory_counts_huge", &mut process.memory_counts_huge);
    w.maybe_list(
        "hugetlbfs",
        &mut process.hugetlbfs,
        |mount: &mut Mount, w| {
            w.must_text("path", &mut mount.path);
            w.maybe_page("page", &mut mount.page);
        },
    );
    w.maybe("shm", &mut process.shm, |shm: &mut Shm, w| {
        w.number("size", &mut shm.size);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugemr_host::facts::{ProcessId, doctor};
    use hugemr_host::root::Root;

    #[test]
    fn what_is_written_is_what_is_read() {
        let mut taken = doctor::gather(&Root::real(), ProcessId::Own);
        taken.functions = Some(vec![Function {
            address: "0000:00:07.0".to_owned(),
            erdma: true,
            node: Some(1),
            driver: None,
            iommu: Iommu::Translated,
        }]);
        taken.devices = Some(vec![RdmaDevice {
            name: "erdma_0".to_owned(),
            ports: vec![Port::default()],
            ..RdmaDevice::default()
        }]);
        taken.pools.stale.push((PageSize::M2, 32));
        taken.pools.ledger = Some("a line".to_owned());
        taken.process.memlock = Some(Rlimit {
            soft: Some(65536),
            hard: None,
        });
        taken.process.hugetlb.push(HugetlbLimit {
            page: PageSize::G1,
            max: 1 << 40,
            used: None,
            at_mmap: true,
            file: "/sys/fs/cgroup/a".to_owned(),
        });
        assert_eq!(read(facts(&taken)).unwrap(), taken);
        let unknown = Facts::default();
        assert_eq!(read(facts(&unknown)).unwrap(), unknown);
    }

    #[test]
    fn other_documents_are_refused_in_words() {
        for (document, part) in [
            (json!({}), "no document"),
            (json!([1]), "no document"),
            (json!({ "schema": "hugemr/facts/2" }), "hugemr/facts/2"),
            (
                json!({ "schema": SCHEMA, "memory": { "free": "much" } }),
                "memory.free",
            ),
            (json!({ "schema": SCHEMA, "memory": 7 }), "memory"),
            (
                json!({ "schema": SCHEMA, "functions": [{ "erdma": 1 }] }),
                "functions[0]",
            ),
            (
                json!({ "schema": SCHEMA, "pools": { "visible": true, "global": [{ "page": 3 }] } }),
                "pools.global[0].page",
            ),
            (
                json!({ "schema": SCHEMA, "tracing": { "kprobes": "perhaps" } }),
                "tracing.kprobes",
            ),
        ] {
            let error = read(document.clone()).unwrap_err();
            assert!(error.contains(part), "{document}: {error}");
        }
    }

    #[test]
    fn what_is_missing_is_not_known() {
        let read = read(json!({ "schema": SCHEMA, "memory": { "free": 5, "later": [] } })).unwrap();
        assert_eq!(read.memory.free, Some(5));
        assert_eq!(read.memory.available, None);
        assert_eq!(read.process.memlock, None);
    }
}
