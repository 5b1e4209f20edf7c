//! Results on disk: CSV for programs, SVG for people.

use std::io;
use std::path::{Path, PathBuf};

use plotters::prelude::*;

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

impl Chart<'_> {
    /// Writes `NAME.svg` into `folder`.
    ///
    /// # Errors
    /// If the folder cannot be written, or there is nothing to draw.
    pub fn write(&self, folder: &Path, name: &str) -> Result<PathBuf, Failure> {
        std::fs::create_dir_all(folder)?;
        let path = folder.join(format!("{name}.svg"));
        let mut svg = String::new();
        self.draw(&mut svg)?;
        std::fs::write(&path, svg)?;
        Ok(path)
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

fn span(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    (low.is_finite() && high.is_finite()).then_some((low, if high > low { high } else { low + 1.0 }))
}

/// A number beside an axis: whole ones without a point, thousands as `k`.
fn tick(value: f64) -> String {
    let (value, unit) = if value.abs() >= 10_000.0 { (value / 1_000.0, " k") } else { (value, "") };
    format!("{}{unit}", (value * 100.0).round() / 100.0)
}

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
        let folder = std::env::temp_dir().join(format!("sealcast-plots-{}", std::process::id()));
        let curve = Curve { label: "sealed".into(), points: vec![(100.0, 1.0), (1000.0, 2.0)] };
        let chart = Chart { title: "t", x: "bytes", y: "us", log_x: true, curves: vec![curve] };
        let svg = std::fs::read_to_string(chart.write(&folder, "c").expect("drawn")).expect("written");
        assert!(svg.starts_with("<svg") && svg.contains("sealed") && svg.contains("bytes"));
        std::fs::remove_dir_all(folder).expect("removed");
    }
}
