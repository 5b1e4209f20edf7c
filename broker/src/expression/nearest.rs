//! 'Did you mean …?'

/// The candidate that differs least from what was written, if it differs by little: at most one letter in
/// three, a swap of neighbours counting once. Ties go to the first.
pub fn nearest<'a>(written: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let close = |candidate: &&str| 3 * distance(written, candidate) <= written.chars().count().max(3);
    candidates.into_iter().filter(close).min_by_key(|candidate| distance(written, candidate))
}

/// Insertions, deletions, changes and swaps of neighbours between two short texts (optimal string
/// alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(LETTERS).collect(), b.chars().take(LETTERS).collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = change.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

/// Letters that are compared: names longer than both parts of an attribute do not occur.
const LETTERS: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_little_is_found() {
        let known = ["exchange:desk", "exchange:clearance", "hospitalA:role"];
        assert_eq!(nearest("exchnage:desk", known), Some("exchange:desk"));
        assert_eq!(nearest("exchange:clearence", known), Some("exchange:clearance"));
        assert_eq!(nearest("insurer:case", known), None);
        assert_eq!(nearest("", known), None);
    }
}
