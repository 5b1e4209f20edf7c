//! Bytes that requests or responses may take together: what is taken comes back when its [`Share`] goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// So many bytes for all. Clones are the same budget.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    used: AtomicUsize,
    bytes_max: usize,
}

/// What one request or response has of a budget.
#[derive(Debug)]
pub struct Share {
    of: Budget,
    bytes: usize,
}

impl Budget {
    /// Nothing is taken.
    pub fn new(bytes_max: usize) -> Budget {
        Budget(Arc::new(Inner { used: AtomicUsize::new(0), bytes_max }))
    }

    /// Whether nothing is left.
    pub fn is_used_up(&self) -> bool {
        self.0.used.load(Ordering::Acquire) >= self.0.bytes_max
    }

    /// A share of no bytes yet.
    pub fn share(&self) -> Share {
        Share { of: self.clone(), bytes: 0 }
    }

    /// Takes bytes that are there already, even beyond the budget.
    pub fn take(&self, bytes: usize) -> Share {
        self.0.used.fetch_add(bytes, Ordering::AcqRel);
        Share { of: self.clone(), bytes }
    }
}

impl Share {
    /// Takes more; `false` if that is not left, and then nothing is taken.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let inner = &self.of.0;
        let more = |used: usize| used.checked_add(bytes).filter(|it| *it <= inner.bytes_max);
        let is_taken = inner.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok();
        self.bytes += if is_taken { bytes } else { 0 };
        is_taken
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.0.used.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_g7_what_is_taken_comes_back_and_nothing_is_taken_beyond() {
        let budget = Budget::new(10);
        let (mut one, mut other) = (budget.share(), budget.share());
        assert!(one.grow(6) && !other.grow(5) && other.grow(4) && !one.grow(1));
        assert!(budget.is_used_up());
        drop(one);
        assert!(!budget.is_used_up() && other.grow(6));
        let beyond = budget.take(5);
        drop(other);
        assert!(!budget.is_used_up() && !budget.share().grow(6));
        drop(beyond);
        assert!(budget.share().grow(10));
    }
}
