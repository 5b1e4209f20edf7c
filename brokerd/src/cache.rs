//! A map that forgets the oldest when it holds too many bytes.

use std::collections::{BTreeMap, VecDeque};

/// The map.
pub(crate) struct Cache<K, V> {
    held: BTreeMap<K, (V, usize)>,
    /// In the order of their coming.
    order: VecDeque<K>,
    bytes: usize,
    bytes_max: usize,
}

impl<K: Ord + Copy, V> Cache<K, V> {
    /// Holds values of at most so many bytes together, and one at least.
    pub(crate) fn new(bytes_max: usize) -> Cache<K, V> {
        Cache { held: BTreeMap::new(), order: VecDeque::new(), bytes: 0, bytes_max }
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.held.get(key).map(|(value, _)| value)
    }

    /// Adds a value of so many bytes, unless there is one under this key; returns the one that is there.
    pub(crate) fn insert(&mut self, key: K, value: V, bytes: usize) -> &V {
        if !self.held.contains_key(&key) {
            self.bytes += bytes;
            self.order.push_back(key);
            while self.bytes > self.bytes_max
                && let Some(oldest) = self.order.pop_front_if(|oldest| *oldest != key)
            {
                self.bytes -= self.held.remove(&oldest).map_or(0, |(_, bytes)| bytes);
            }
        }
        &self.held.entry(key).or_insert((value, bytes)).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_gives_way_and_the_first_value_stays() {
        let mut cache = Cache::new(10);
        assert_eq!(cache.insert(1, 'a', 4), &'a');
        assert_eq!(cache.insert(1, 'b', 4), &'a');
        cache.insert(2, 'c', 6);
        assert_eq!((cache.get(&1), cache.get(&2)), (Some(&'a'), Some(&'c')));
        cache.insert(3, 'd', 1);
        assert_eq!((cache.get(&1), cache.get(&2), cache.get(&3)), (None, Some(&'c'), Some(&'d')));
        cache.insert(4, 'e', 99);
        assert_eq!((cache.held.len(), cache.get(&4)), (1, Some(&'e')));
    }
}
