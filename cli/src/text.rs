//! Numbers, times and tables as people read them, and as they write them.

use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use sealcast_wire::Utc;
use time::OffsetDateTime;
use time::macros::format_description;

/// A table: columns as wide as their widest cell, two spaces between, no trailing blanks.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|s| visible(s)).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let padded = |(cell, w): (&String, &usize)| format!("{cell}{}", " ".repeat(w - visible(cell)));
        let cells: Vec<String> = row.iter().zip(&widths).map(padded).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Characters that take room: colours (`ESC [ … m`) do not.
fn visible(text: &str) -> usize {
    let mut parts = text.split('\x1b');
    let first = parts.next().map_or(0, |p| p.chars().count());
    first + parts.map(|p| p.split_once('m').map_or(0, |(_, rest)| rest.chars().count())).sum::<usize>()
}

/// A whole number from 1 to `most`, which an error names.
pub(crate) fn whole(most: usize) -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::new().range(1..=most as u64)
}

/// A row of a table.
pub(crate) fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.iter().map(|&c| c.to_owned()).collect()
}

/// `0.3 ms`, `14 s`, `3 m 10 s`, `2 h 5 m`, `90 d`: two parts at most.
pub(crate) fn duration(d: Duration) -> String {
    let (ms, s) = (d.as_secs_f64() * 1e3, d.as_secs());
    let two = |a: u64, unit: &str, b: u64, small: &str| {
        if b == 0 { format!("{a} {unit}") } else { format!("{a} {unit} {b} {small}") }
    };
    match s {
        0 if ms < 0.995 => format!("{ms:.2} ms"),
        0 if ms < 9.95 => format!("{ms:.1} ms"),
        0 => format!("{ms:.0} ms"),
        1..10 => format!("{:.1} s", d.as_secs_f64()),
        10..60 => format!("{s} s"),
        60..3600 => two(s / 60, "m", s % 60, "s"),
        3600..86_400 => two(s / 3600, "h", s % 3600 / 60, "m"),
        _ => two(s / 86_400, "d", s % 86_400 / 3600, "h"),
    }
}

/// That no other member was heard: it accuses nobody.
pub(crate) fn stale(silent: Duration) -> String {
    format!(
        "stale: nobody else was heard for {}; the others may be off, or the relay keeps them apart",
        duration(silent)
    )
}

/// `9 B`, `1.0 KB`, `3.2 MB`.
pub(crate) fn bytes(n: u64) -> String {
    match n {
        0..1_000 => format!("{n} B"),
        1_000..1_000_000 => format!("{:.1} KB", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", n as f64 / 1e6),
        _ => format!("{:.1} GB", n as f64 / 1e9),
    }
}

/// `100 B`, `1 KiB`, `60,000 B`: exactly.
pub(crate) fn size(n: usize) -> String {
    match n {
        _ if n > 0 && n.is_multiple_of(1 << 20) => format!("{} MiB", n >> 20),
        _ if n > 0 && n.is_multiple_of(1 << 10) => format!("{} KiB", n >> 10),
        _ => format!("{} B", thousands(n as u64)),
    }
}

/// `1 member`, `7 members`.
pub(crate) fn members(n: usize) -> String {
    if n == 1 { "1 member".to_owned() } else { format!("{n} members") }
}

/// `1 broker`, `4 brokers`.
pub(crate) fn brokers(n: usize) -> String {
    if n == 1 { "1 broker".to_owned() } else { format!("{n} brokers") }
}

/// `1,234,567`.
pub(crate) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(c);
    }
    text
}

/// `2036-11-18`.
pub(crate) fn date(t: Utc) -> String {
    let format = format_description!("[year]-[month]-[day]");
    OffsetDateTime::from_unix_timestamp(t.0).ok().and_then(|t| t.format(format).ok()).unwrap_or_else(|| t.0.to_string())
}

/// `2026-11-20T10:31:02Z`.
pub(crate) fn instant(t: Utc) -> String {
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]Z");
    OffsetDateTime::from_unix_timestamp(t.0).ok().and_then(|t| t.format(format).ok()).unwrap_or_else(|| t.0.to_string())
}

/// Today's calendar second.
pub(crate) fn now() -> Utc {
    Utc(OffsetDateTime::now_utc().unix_timestamp())
}

/// 2026-11-01: no clock that is right shows less (G5).
pub(crate) const FLOOR: Utc = Utc(1_793_491_200);

/// Reads `250ms`, `30s`, `10m`, `8h`, `90d`, `10y`, or seconds without a unit.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let seconds_per = match unit.trim() {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        "y" => 365.0 * 86_400.0,
        _ => return Err("write 250ms, 30s, 10m, 8h, 90d or 1y".to_owned()),
    };
    let n: f64 = number.parse().map_err(|_| "write 250ms, 30s, 10m, 8h, 90d or 1y".to_owned())?;
    Duration::try_from_secs_f64(n * seconds_per).map_err(|_| "that is too long".to_owned())
}

/// Reads `100`, `1KiB`, `100KB`, `3MB`, `1MiB`.
pub(crate) fn parse_bytes(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "k" | "kib" => 1 << 10,
        "mb" => 1_000_000,
        "m" | "mib" => 1 << 20,
        _ => return Err("write 100, 1KiB, 100KB or 3MB".to_owned()),
    };
    let n: usize = number.parse().map_err(|_| "write 100, 1KiB, 100KB or 3MB".to_owned())?;
    n.checked_mul(factor).ok_or_else(|| "that is too large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_at_most_two_parts() {
        let shown = |ms| duration(Duration::from_millis(ms));
        let got: Vec<String> = [0, 3, 38, 1_500, 14_000, 190_000, 7_500_000, 90 * 86_400_000].map(shown).into();
        assert_eq!(got, ["0.00 ms", "3.0 ms", "38 ms", "1.5 s", "14 s", "3 m 10 s", "2 h 5 m", "90 d"]);
    }

    #[test]
    fn colours_do_not_move_columns() {
        let rows = [row(["\x1b[31mx\x1b[0m", "b"]), row(["long", "b"])];
        assert_eq!(table(&rows), "\x1b[31mx\x1b[0m     b\nlong  b");
    }

    #[test]
    fn what_people_write_is_read() {
        assert_eq!(parse_duration("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(parse_duration("0.5"), Ok(Duration::from_millis(500)));
        assert!(parse_duration("soon").is_err() && parse_duration("1e999d").is_err());
        assert_eq!(parse_bytes("1KiB"), Ok(1024));
        assert_eq!(parse_bytes("100KB"), Ok(100_000));
        assert!(parse_bytes("-1").is_err() && parse_bytes("99999999999999999999").is_err());
    }
}
