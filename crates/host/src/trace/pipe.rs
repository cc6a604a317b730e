//! The text of `trace_pipe`: marks of ours, returns of the helper, and the thread of each.
//!
//! A line is `COMMAND-THREAD [CPU] FLAGS TIME: EVENT`; a command may hold blanks, hyphens and brackets, and between thread and
//! CPU may stand the process in parentheses. Linux `Documentation/trace/ftrace.rst`.

use std::collections::{BTreeMap, HashMap};

use hugemr_core::prove::Sign;

/// Name of the event.
pub(super) const EVENT: &str = "hugemr_page";
/// Of a write to `trace_marker`.
const MARK: &str = ": tracing_mark_write: hugemr ";

/// The mark before a call.
pub(super) fn begin(mr: u64) -> String {
    format!("hugemr begin {mr}\n")
}

/// The mark behind a call.
pub(super) fn end(mr: u64) -> String {
    format!("hugemr end {mr}\n")
}

/// What the lines said so far.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// The beginning of a line whose rest has not come.
    rest: String,
    /// Thread -> the MR whose call it is in.
    inside: HashMap<u64, u64>,
    pub(super) signs: BTreeMap<u64, Vec<Sign>>,
    pub(super) lost: u64,
}

impl Reader {
    /// Takes more text.
    pub(super) fn read(&mut self, text: &str) {
        self.rest.push_str(text);
        while let Some(end) = self.rest.find('\n') {
            let line: String = self.rest.drain(..=end).collect();
            self.line(line.trim_end());
        }
    }

    fn line(&mut self, line: &str) {
        if let Some(lost) = lost(line) {
            self.lost += lost;
            return;
        }
        if let Some((head, said)) = line.split_once(MARK) {
            let Some(thread) = thread(head) else { return };
            match said.trim_end().split_once(' ') {
                Some(("begin", mr)) => {
                    if let Ok(mr) = mr.parse() {
                        self.inside.insert(thread, mr);
                    }
                }
                _ => {
                    self.inside.remove(&thread);
                }
            }
        } else if let Some((head, said)) = line.split_once(&format!(": {EVENT}: ")) {
            let mr = thread(head).and_then(|thread| self.inside.get(&thread));
            let value = said.rsplit_once("page=0x").map(|(_, hex)| hex.trim());
            let value = value.and_then(|hex| u64::from_str_radix(hex, 16).ok());
            if let (Some(mr), Some(value)) = (mr, value) {
                self.signs
                    .entry(*mr)
                    .or_default()
                    .push(Sign::Returned(value));
            }
        }
    }
}

/// The number of the thread in the head of a line.
fn thread(head: &str) -> Option<u64> {
    let (task, _) = head.rsplit_once(" [")?;
    let task = task.trim_end();
    // The process in parentheses, where somebody wants to see it.
    let task = task
        .strip_suffix(')')
        .and_then(|t| t.rsplit_once('('))
        .map_or(task, |(task, _)| task.trim_end());
    task.rsplit_once('-')?.1.parse().ok()
}

/// `CPU:0 [LOST 12 EVENTS]`
fn lost(line: &str) -> Option<u64> {
    let (_, rest) = line.strip_prefix("CPU:")?.split_once("[LOST ")?;
    rest.strip_suffix(" EVENTS]")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Reader {
        let mut reader = Reader::default();
        reader.read(text);
        reader
    }

    #[test]
    fn an_event_belongs_to_the_call_of_its_thread() {
        // Two threads at once, another program in between, and a line that comes in two pieces.
        let mut reader = read(
            "          hugemr-77      [000] .....   412.050001: tracing_mark_write: hugemr begin 3\n\
             \x20hugemr-reg-1-78      [001] .....   412.050002: tracing_mark_write: hugemr begin 4\n\
             \x20other [0] x-79      [001] d....   412.050003: hugemr_page: (erdma_reg_user_mr+0xf1/0x2d0 [erdma] <- ib_umem_find_best_pgsz) page=0x1000\n\
             \x20hugemr-reg-1-78   (     77) [001] d....   412.050004: hugemr_page: (a+0x1/0x2 <- ib_umem_find_best_pgsz) page=0x200000\n\
             \x20hugemr-77      [000] d....   412.050005: hugemr_page: (a+0x1/0x2 <- ib_umem_find_best_pgsz) page=0x40000",
        );
        reader.read("000\n          hugemr-77      [000] .....   412.050006: tracing_mark_write: hugemr end 3\n\
             CPU:1 [LOST 12 EVENTS]\n\
             \x20         hugemr-77      [000] d....   412.050007: hugemr_page: (queue <- ib_umem_find_best_pgsz) page=0x1000\n");
        let expected = [
            (3, vec![Sign::Returned(1 << 30)]),
            (4, vec![Sign::Returned(2 << 20)]),
        ];
        assert_eq!(reader.signs, BTreeMap::from(expected));
        assert_eq!(reader.lost, 12);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(\\PC{0,20}-77 \\[000\\] .: )?(hugemr_page: |tracing_mark_write: hugemr )?\\PC{0,30}\n") {
            let _ = read(&text);
        }
    }
}
