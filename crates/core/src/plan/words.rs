//! A plan in one line, for logs and answers.

use std::fmt;

use crate::chunks::Segment;
use crate::size::{Bytes, Count, PageSize};

use super::answer::Plan;
use super::request::Pages;

/// `896 GiB as 14 MRs x 64 GiB on 2 MiB huge pages`; whether it fits is not said.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mapped, mrs) = (Bytes(self.mapped), mrs(&self.segments));
        write!(f, "{mapped} as {mrs} on {}", self.pages.words())
    }
}

/// `14 MRs x 64 GiB`, `3 MRs x 64 GiB and 1 of 2 GiB`, `1 MR of 5 GiB`.
#[must_use]
pub fn mrs(segments: &[Segment]) -> String {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for segment in segments {
        let ends = [0, segment.count() - 1].map(|i| segment.chunk(i).map_or(0, |c| c.len));
        let inner = segment.count().saturating_sub(2);
        let parts = match segment.count() {
            1 => vec![(1, ends[0])],
            _ => vec![(1, ends[0]), (inner, segment.chunk), (1, ends[1])],
        };
        for (count, len) in parts.into_iter().filter(|(count, _)| *count > 0) {
            match runs.last_mut() {
                Some(last) if last.1 == len => last.0 += count,
                _ => runs.push((count, len)),
            }
        }
    }
    match runs.as_slice() {
        [(1, len)] => format!("1 MR of {}", Bytes(*len)),
        [(count, len)] => format!("{} x {}", Count(*count, "MR"), Bytes(*len)),
        [(count, len), (1, last)] => {
            format!(
                "{} x {} and 1 of {}",
                Count(*count, "MR"),
                Bytes(*len),
                Bytes(*last)
            )
        }
        _ => {
            let total: u64 = runs.iter().map(|r| r.0).sum();
            let lens = runs.iter().map(|r| r.1);
            let (low, high) = (lens.clone().min().unwrap_or(0), lens.max().unwrap_or(0));
            format!(
                "{} of {} to {}",
                Count(total, "MR"),
                Bytes(low),
                Bytes(high)
            )
        }
    }
}

impl Pages {
    /// As a sentence names them: `2 MiB huge pages`.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Self::Only(page) if page > PageSize::K64 => format!("{page} huge pages"),
            Self::Only(page) => format!("{page} pages"),
            Self::Thp => {
                "transparent huge pages (2 MiB where there are any, else 4 KiB)".to_owned()
            }
            Self::Mixed => "1 GiB and 2 MiB huge pages".to_owned(),
            Self::Auto => "pages".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Device, Family};
    use crate::host::Host;
    use crate::plan::{PlanRequest, plan};
    use crate::size::{GIB, MIB};

    #[test]
    fn a_plan_in_one_line() {
        let device = Device::unlimited("test", Family::Other);
        let of = |bytes: u64, pages, chunk| {
            let mut request = PlanRequest::total(bytes).pages(pages);
            request.chunk = chunk;
            plan(&request, &device, &Host::default())
                .unwrap()
                .to_string()
        };
        let huge = Pages::Only(PageSize::M2);
        for (bytes, pages, chunk, text) in [
            (
                GIB,
                huge,
                None,
                "1 GiB as 1 MR of 1 GiB on 2 MiB huge pages",
            ),
            (
                6 * GIB,
                huge,
                Some(2 * GIB),
                "6 GiB as 3 MRs x 2 GiB on 2 MiB huge pages",
            ),
            (
                5 * GIB,
                Pages::Only(PageSize::K4),
                Some(2 * GIB),
                "5 GiB as 2 MRs x 2 GiB and 1 of 1 GiB on 4 KiB pages",
            ),
            (
                4 * MIB,
                Pages::Thp,
                None,
                "4 MiB as 1 MR of 4 MiB on transparent huge pages (2 MiB where there are any, else 4 KiB)",
            ),
        ] {
            assert_eq!(of(bytes, pages, chunk), text);
        }
    }
}
