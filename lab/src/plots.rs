//! Results on disk: CSV for programs, SVG for people.

use std::io;
use std::path::{Path, PathBuf};

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::Failure;

/// A table of results, written as CSV.
#[derive(Debug, Default)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these columns.
    pub fn new(columns: &[&str]) -> Table {
        Table { header: columns.iter().map(|c| c.to_string()).collect(), rows: Vec::new() }
    }

    /// Appends a row.
    ///
    /// # Panics
    /// If it has not one cell per column.
    pub fn push(&mut self, row: &[&dyn std::fmt::Display]) {
        assert_eq!(row.len(), self.header.len(), "one cell per column");
        self.rows.push(row.iter().map(|c| c.to_string()).collect());
    }

    /// The table as CSV.
    pub fn to_csv(&self) -> String {
        let line = |cells: &Vec<String>| cells.iter().map(|c| quoted(c)).collect::<Vec<_>>().join(",") + "\n";
        std::iter::once(&self.header).chain(&self.rows).map(line).collect()
    }

    /// Writes `NAME.csv` into `folder`.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn write(&self, folder: &Path, name: &str) -> io::Result<PathBuf> {
        std::fs::create_dir_all(folder)?;
        let path = folder.join(format!("{name}.csv"));
        std::fs::write(&path, self.to_csv())?;
        Ok(path)
    }
}

/// One curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its name in the legend.
    pub label: String,
    /// Its points, by rising x.
    pub points: Vec<(f64, f64)>,
}

/// A line chart with both axes logarithmic or linear.
#[derive(Clone, Debug)]
pub struct Chart<'a> {
    /// Above the chart.
    pub title: &'a str,
    /// Below the x axis, with its unit.
    pub x: &'a str,
    /// Beside the y axis, with its unit.
    pub y: &'a str,
    /// Whether x is logarithmic.
    pub log_x: bool,
    /// The curves.
    pub curves: Vec<Curve>,
}

/// One bar for each of what is compared.
#[derive(Clone, Debug)]
pub struct Bars<'a> {
    /// Above the bars.
    pub title: &'a str,
    /// What their lengths are, with its unit.
    pub y: &'a str,
    /// Names and values, from above.
    pub bars: Vec<(String, f64)>,
}

impl Bars<'_> {
    /// Writes `NAME.svg` into `folder`.
    ///
    /// # Errors
    /// If the folder cannot be written, or there is nothing to draw.
    pub fn write(&self, folder: &Path, name: &str) -> Result<PathBuf, Failure> {
        let mut svg = String::new();
        self.draw(&mut svg)?;
        written(folder, name, &svg)
    }

    /// Names on the left, each bar with its value at its end.
    fn draw(&self, svg: &mut String) -> Result<(), Failure> {
        let (_, most) = span(self.bars.iter().map(|it| it.1)).ok_or("nothing to draw")?;
        let height = 110 + BAR_STEP * i32::try_from(self.bars.len())?;
        let root = SVGBackend::with_string(svg, (900, u32::try_from(height)?)).into_drawing_area();
        root.fill(&WHITE)?;
        root.draw_text(self.title, &("sans-serif", 22).into_text_style(&root), (24, 20))?;
        let middle = Pos::new(HPos::Right, VPos::Center);
        let name = ("sans-serif", 15).into_text_style(&root).pos(middle);
        let value = ("sans-serif", 15).into_text_style(&root).pos(Pos::new(HPos::Left, VPos::Center));
        for (i, (label, length)) in self.bars.iter().enumerate() {
            let y = 76 + BAR_STEP * i32::try_from(i)?;
            // Both are below 900.
            let end = BARS_AT + (BAR_LENGTH * length / most.max(f64::MIN_POSITIVE)) as i32;
            root.draw(&Rectangle::new([(BARS_AT, y - 11), (end, y + 11)], Palette99::pick(0).filled()))?;
            root.draw_text(label, &name, (BARS_AT - 10, y))?;
            root.draw_text(&tick(*length), &value, (end + 8, y))?;
        }
        let below = ("sans-serif", 14).into_text_style(&root).pos(Pos::new(HPos::Left, VPos::Center));
        root.draw_text(self.y, &below, (BARS_AT, height - 26))?;
        root.present()?;
        Ok(())
    }
}

impl Chart<'_> {
    /// Writes `NAME.svg` into `folder`.
    ///
    /// # Errors
    /// If the folder cannot be written, or there is nothing to draw.
    pub fn write(&self, folder: &Path, name: &str) -> Result<PathBuf, Failure> {
        let mut svg = String::new();
        self.draw(&mut svg)?;
        written(folder, name, &svg)
    }

    fn draw(&self, svg: &mut String) -> Result<(), Failure> {
        let all = || self.curves.iter().flat_map(|c| c.points.iter().copied());
        let (x0, x1) = span(all().map(|p| p.0)).ok_or("nothing to draw")?;
        let (_, y1) = span(all().map(|p| p.1)).ok_or("nothing to draw")?;
        let root = SVGBackend::with_string(svg, (900, 560)).into_drawing_area();
        root.fill(&WHITE)?;
        let mut on = ChartBuilder::on(&root);
        on.caption(self.title, ("sans-serif", 22)).margin(16).x_label_area_size(44).y_label_area_size(72);
        macro_rules! draw {
            ($x:expr) => {{
                let mut chart = on.build_cartesian_2d($x, 0f64..y1 * 1.08)?;
                chart
                    .configure_mesh()
                    .x_desc(self.x)
                    .y_desc(self.y)
                    .x_label_formatter(&|x| tick(*x))
                    .y_label_formatter(&|y| tick(*y))
                    .light_line_style(WHITE)
                    .draw()?;
                for (i, curve) in self.curves.iter().enumerate() {
                    let colour = Palette99::pick(i).to_rgba();
                    chart
                        .draw_series(LineSeries::new(curve.points.iter().copied(), colour.stroke_width(2)))?
                        .label(curve.label.clone())
                        .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
                    chart.draw_series(curve.points.iter().map(|p| Circle::new(*p, 3, colour.filled())))?;
                }
                chart
                    .configure_series_labels()
                    .position(SeriesLabelPosition::UpperLeft)
                    .background_style(WHITE.mix(0.8))
                    .border_style(BLACK)
                    .draw()?;
            }};
        }
        // A logarithmic axis is marked where something was measured.
        let mut measured: Vec<f64> = all().map(|p| p.0).collect();
        measured.sort_by(f64::total_cmp);
        measured.dedup();
        if self.log_x && x0 > 0.0 {
            draw!((x0..x1).log_scale().with_key_points(measured))
        } else {
            draw!(x0..x1)
        }
        root.present()?;
        Ok(())
    }
}

fn written(folder: &Path, name: &str, svg: &str) -> Result<PathBuf, Failure> {
    std::fs::create_dir_all(folder)?;
    let path = folder.join(format!("{name}.svg"));
    std::fs::write(&path, svg)?;
    Ok(path)
}

fn span(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    (low.is_finite() && high.is_finite()).then_some((low, if high > low { high } else { low + 1.0 }))
}

/// A number beside an axis: whole ones without a point, thousands as `k`.
fn tick(value: f64) -> String {
    let (value, unit) = if value.abs() >= 10_000.0 { (value / 1_000.0, " k") } else { (value, "") };
    format!("{}{unit}", (value * 100.0).round() / 100.0)
}

/// Where bars begin, how long the longest is, and how far they are apart, in pixels.
const BARS_AT: i32 = 300;
const BAR_LENGTH: f64 = 500.0;
const BAR_STEP: i32 = 40;

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_quotes_what_csv_must_quote() {
        let mut t = Table::new(&["what", "n"]);
        t.push(&[&"plain, \"raw\"", &3]);
        assert_eq!(t.to_csv(), "what,n\n\"plain, \"\"raw\"\"\",3\n");
    }

    #[test]
    fn a_tick_says_no_more_than_it_must() {
        assert_eq!([2.0, 0.25, 10_000.0, 62_500.0].map(tick), ["2", "0.25", "10 k", "62.5 k"]);
    }

    #[test]
    fn a_chart_is_an_svg_with_its_labels() {
        let folder = tempfile::tempdir().expect("a folder");
        let curve = Curve { label: "sealed".into(), points: vec![(100.0, 1.0), (1000.0, 2.0)] };
        let chart = Chart { title: "t", x: "bytes", y: "us", log_x: true, curves: vec![curve] };
        let svg = std::fs::read_to_string(chart.write(folder.path(), "c").expect("drawn")).expect("written");
        assert!(svg.starts_with("<svg") && svg.contains("sealed") && svg.contains("bytes"));
    }

    #[test]
    fn bars_are_an_svg_with_their_values() {
        let folder = tempfile::tempdir().expect("a folder");
        let bars = Bars { title: "t", y: "1/s", bars: vec![("Solo".into(), 100.0), ("module 1".into(), 31_500.0)] };
        let svg = std::fs::read_to_string(bars.write(folder.path(), "b").expect("drawn")).expect("written");
        assert!(svg.contains("module 1") && svg.contains("31.5 k") && svg.contains("1/s"));
    }
}
