//! Figures in a document: each area between two marks, with the machine and the day.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::row::{Row, number};
use crate::Failure;

/// Puts the rows of an area where the document has its marks, and leaves the rest as it is.
pub(super) fn record(document: &Path, area: &str, quick: bool, rows: &[Row]) -> Result<(), Failure> {
    let shown = document.display();
    let text = fs::read_to_string(document).map_err(|e| format!("reading {shown}: {e}"))?;
    let kind = if quick { "a quick run" } else { "a full run" };
    let made = format!("{kind} on {}, {}\n\n{}", time::UtcDateTime::now().date(), machine(), table(rows));
    let text = replaced(&text, area, &made).ok_or_else(|| {
        let [begin, end] = marks(area);
        format!("{shown} has no place for the figures: a line {begin} and, below it, a line {end}")
    })?;
    fs::write(document, text).map_err(|e| format!("writing {shown}: {e}").into())
}

fn marks(area: &str) -> [String; 2] {
    [format!("<!-- figures of {area} -->"), format!("<!-- end of {area} -->")]
}

fn replaced(text: &str, area: &str, made: &str) -> Option<String> {
    let [begin, end] = marks(area);
    let (before, rest) = text.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n\n{made}\n{end}{after}"))
}

/// A table in Markdown.
fn table(rows: &[Row]) -> String {
    let mut text =
        String::from("| row | what | value | goal | holds | measured with it |\n|---|---|---|---|---|---|\n");
    for row in rows {
        let value = row.value.map_or("–".into(), |v| format!("{} {}", number(v), row.unit));
        let parts: Vec<String> = row.parts.iter().map(|(name, v)| format!("{name} {}", number(*v))).collect();
        let cells = [
            &format!("`{}`", row.id),
            &row.what,
            &value,
            &row.goal.to_string(),
            &row.holds.to_string(),
            &parts.join(", "),
        ];
        let _ = writeln!(text, "| {} |", cells.map(|cell| cell.trim().replace('|', "\\|")).join(" | "));
    }
    text
}

/// How many cores of which processor.
fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let name = name.map_or("an unnamed processor", |(_, name)| name.trim());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} cores of {name}")
}

#[cfg(test)]
mod tests {
    use super::super::Goal;
    use super::*;

    #[test]
    fn an_area_is_replaced_and_the_rest_stays() {
        let text = "above\n<!-- figures of lan -->\nyesterday\n<!-- end of lan -->\nbelow\n<!-- figures of brokers -->\n<!-- end of brokers -->\n";
        let rows = [Row::new("lan", "x", "a | b", "ratio", Goal::AtMost(1.05)).measured(1.0, "").part("liblcm", 2.0)];
        let once = replaced(text, "lan", &table(&rows)).unwrap();
        assert!(once.starts_with("above\n") && once.contains("below\n") && !once.contains("yesterday"), "{once}");
        assert!(once.contains("| `x` | a \\| b | 1 ratio | <= 1.05 | yes | liblcm 2 |"), "{once}");
        assert_eq!(replaced(&once, "lan", &table(&rows)).unwrap(), once);
        assert_eq!(replaced("no marks", "lan", ""), None);
    }
}
