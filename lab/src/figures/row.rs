//! One figure: what was measured, what was aimed at, and whether it holds.

use std::fmt::Write as _;

use serde::Serialize;

/// One row of the figures table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Names it, for `--row`.
    pub id: String,
    /// What is measured.
    pub what: String,
    /// The number; absent where it was not had.
    pub value: Option<f64>,
    /// Its unit; `ratio` where it is one.
    pub unit: &'static str,
    /// What is to be reached.
    pub goal: Goal,
    /// Whether it is.
    pub holds: Holds,
    /// The parts that the value is made of, for reading and checking.
    pub parts: Vec<(String, f64)>,
    /// How it was measured: counts, window, linger, seeds.
    pub how: String,
    /// Measures it again, alone.
    pub command: String,
}

/// What is to be reached.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// At least the first, and at most the second.
    Between(f64, f64),
    /// To be reported; nothing is promised.
    Report,
}

/// Whether a goal is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Holds {
    /// It is.
    Yes,
    /// It is not.
    No,
    /// The peer that it needs was not run; counts as not held.
    NotRun,
    /// Cannot be had in a quick run.
    FullRunOnly,
    /// There is no goal.
    Reported,
}

impl Row {
    /// A row that is about to get its value.
    pub fn new(area: &str, id: &str, what: impl Into<String>, unit: &'static str, goal: Goal) -> Row {
        Row {
            id: id.into(),
            what: what.into(),
            value: None,
            unit,
            goal,
            holds: Holds::NotRun,
            parts: Vec::new(),
            how: String::new(),
            command: format!("sealcast lab figures {area} --row {id}"),
        }
    }

    /// The row with its value, judged against its goal.
    pub fn measured(mut self, value: f64, how: impl Into<String>) -> Row {
        self.value = Some(value);
        self.how = how.into();
        self.holds = self.goal.judge(value);
        self
    }

    /// The row with a part of its value.
    pub fn part(mut self, name: impl Into<String>, value: f64) -> Row {
        self.parts.push((name.into(), value));
        self
    }

    /// The row without a value, and why.
    pub fn absent(mut self, holds: Holds, why: impl Into<String>) -> Row {
        self.holds = holds;
        self.how = why.into();
        self
    }
}

impl Goal {
    fn judge(self, value: f64) -> Holds {
        match self {
            Goal::AtMost(most) => Holds::of(value <= most),
            Goal::AtLeast(least) => Holds::of(value >= least),
            Goal::Between(least, most) => Holds::of((least..=most).contains(&value)),
            Goal::Report => Holds::Reported,
        }
    }
}

/// The rows as a table for a terminal, each with its command below.
pub fn table(rows: &[Row]) -> String {
    let mut lines = vec![["id", "what", "value", "unit", "goal", "holds"].map(String::from)];
    for row in rows {
        let value = row.value.map_or("-".into(), number);
        let goal = row.goal.to_string();
        lines.push([row.id.clone(), row.what.clone(), value, row.unit.into(), goal, row.holds.to_string()]);
    }
    let width: Vec<usize> = (0..6).map(|c| lines.iter().map(|l| l[c].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for (i, line) in lines.iter().enumerate() {
        for (c, cell) in line.iter().enumerate() {
            let pad = width[c] - cell.chars().count();
            let _ = if c == 2 { write!(text, "{:pad$}{cell}  ", "") } else { write!(text, "{cell}{:pad$}  ", "") };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        if let Some(row) = i.checked_sub(1).map(|i| &rows[i]) {
            let parts: Vec<String> = row.parts.iter().map(|(name, v)| format!("{name} {}", number(*v))).collect();
            for note in [parts.join(", "), row.how.clone(), row.command.clone()] {
                if !note.is_empty() {
                    let _ = writeln!(text, "    {note}");
                }
            }
        }
    }
    text
}

impl Holds {
    /// Yes or no.
    pub fn of(holds: bool) -> Holds {
        if holds { Holds::Yes } else { Holds::No }
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Goal::AtMost(v) => write!(f, "<= {}", number(*v)),
            Goal::AtLeast(v) => write!(f, ">= {}", number(*v)),
            Goal::Between(least, most) => write!(f, "{} - {}", number(*least), number(*most)),
            Goal::Report => f.write_str("report"),
        }
    }
}

impl std::fmt::Display for Holds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Holds::Yes => "yes",
            Holds::No => "no",
            Holds::NotRun => "not run",
            Holds::FullRunOnly => "full run only",
            Holds::Reported => "-",
        })
    }
}

/// A number as people read it: three significant digits, thousands as they are.
pub fn number(v: f64) -> String {
    match v.abs() {
        a if a >= 1000.0 || v.fract() == 0.0 => {
            let digits = format!("{:.0}", a);
            let mut text = String::from(if v < 0.0 { "-" } else { "" });
            for (i, c) in digits.chars().enumerate() {
                if i > 0 && (digits.len() - i).is_multiple_of(3) {
                    text.push(' ');
                }
                text.push(c);
            }
            text
        }
        a if a >= 100.0 => format!("{v:.0}"),
        a if a >= 10.0 => format!("{v:.1}"),
        a if a >= 1.0 => format!("{v:.2}"),
        _ => format!("{v:.3}"),
    }
}

/// The middle value; the mean of the two middle ones if there is an even number.
///
/// # Panics
/// If there is none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    assert!(n > 0, "a median needs values");
    (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_holds_as_its_goal_says() {
        let row = |goal, value| Row::new("lan", "x", "x", "ratio", goal).measured(value, "").holds;
        assert_eq!(row(Goal::AtMost(1.05), 1.05), Holds::Yes);
        assert_eq!(row(Goal::AtMost(1.05), 1.06), Holds::No);
        assert_eq!(row(Goal::AtLeast(3.0), 2.9), Holds::No);
        assert_eq!(row(Goal::AtLeast(3.0), f64::NAN), Holds::No);
        let between = [0.2, 0.25, 0.75, 0.8].map(|value| row(Goal::Between(0.25, 0.75), value));
        assert_eq!(between, [Holds::No, Holds::Yes, Holds::Yes, Holds::No]);
        assert_eq!(row(Goal::Report, 1.0), Holds::Reported);
    }

    #[test]
    fn a_row_whose_peer_was_not_run_does_not_hold() {
        let row = Row::new("lan", "x", "x", "ratio", Goal::AtMost(1.0)).absent(Holds::NotRun, "make peers");
        assert!(table(&[row]).contains("not run"));
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            ["1 234 567", "0.123", "12.3", "1.05", "64", "-1 000"],
            [1_234_567.0, 0.1234, 12.34, 1.05, 64.0, -1000.0].map(number).each_ref().map(String::as_str)
        );
    }

    #[test]
    fn a_median_is_the_middle() {
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[1.0, 2.0, 3.0, 10.0])), (2.0, 2.5));
    }
}
