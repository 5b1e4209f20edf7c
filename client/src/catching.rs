//! What brokers say of the places that a subscription lacks, each of them from as far back as it keeps them.
//!
//! ```text
//! broker 0   ▐ 0 … found … │ next page ▶
//! broker 1   ░░░ lost ░░░▐ 5 000 … found … │ next page ▶
//! broker 2   ░░░░░░░ lost ░░░░░░░▐ 9 000 … found … │
//!            at ▲ : f + 1 find the same ─▶ it is that; who has nothing yet is asked on from where its own page ended
//! ```
//! Brokers begin at different places and their pages end at different ones, so each goes on from its own end: a pair
//! (place, sn) that only one broker has named is asked of nobody else. A place is lost if too few are left who could find
//! the same there, or, when nobody is to be waited for any more, if f + 1 say so.

use std::collections::{BTreeMap, VecDeque};

use sealcast_broker::state::Entry;
use sealcast_wire::limits;

use super::channel::believed;
use super::delivering::Page;
use super::line::{Found, places};

/// By broker, what it says of one subscription.
#[derive(Debug, Default)]
pub(super) struct Streams(BTreeMap<u16, Stream>);

/// What one broker says.
#[derive(Debug)]
struct Stream {
    /// The place of the first in `found`; what is before it the broker no longer keeps.
    first: u64,
    found: VecDeque<Found>,
    /// Where its next page begins: a place, and the sn from which on it looks.
    next: (u64, u64),
    /// Where the page begins that it was asked for and has not sent.
    asked: Option<(u64, u64)>,
    /// Its last page brought it on.
    moved: bool,
    pages: u32,
}

/// How many brokers there are, and what is to be waited for before anything is given up.
pub(super) struct AgreementRule<'a> {
    pub(super) brokers: usize,
    pub(super) faulty: usize,
    /// This one may yet say something.
    pub(super) waits: &'a dyn Fn(u16) -> bool,
    /// Those who said different things may yet say the same: honest brokers do, once they see as far.
    pub(super) may_agree: bool,
}

impl Streams {
    /// Asks a broker for its next page: from where on. Who has said nothing yet, or less than is agreed on, begins at the
    /// `anchor`, a pair that f + 1 brokers back.
    pub(super) fn ask(&mut self, broker: u16, anchor: (u64, u64)) -> (u64, u64) {
        let stream = self.0.entry(broker).or_insert_with(|| Stream::new(anchor));
        if stream.pages == 0 || stream.next < anchor {
            *stream = Stream::new(anchor);
        }
        (stream.asked, stream.moved) = (Some(stream.next), false);
        stream.next
    }

    /// Takes in a page that a broker was asked for; places of one end long before numbers do.
    pub(super) fn take(&mut self, broker: u16, page: Page) {
        let Some(stream) = self.0.get_mut(&broker) else { return };
        let first = page.notice.first;
        let is_number = first <= u64::MAX / 2;
        let fits = |asked: &mut (u64, u64)| is_number && asked.0.checked_add(page.lost) == Some(first);
        let Some(asked) = stream.asked.take_if(fits) else { return };
        let entries: BTreeMap<u64, Entry> = page.publications.into_iter().map(|it| (it.sn, it)).collect();
        let found = places(&page.notice.runs, limits::RESUME_ENTRIES_MAX).into_iter().map_while(|sn| match sn {
            Some(sn) => entries.get(&sn).map(|entry| Found::Publication(Box::new(entry.clone()))),
            None => Some(Found::Empty),
        });
        if page.lost > 0 {
            stream.found.clear();
            stream.first = first;
        }
        stream.found.extend(found);
        stream.next = (stream.end(), page.until.max(asked.1));
        stream.moved = stream.next != asked;
        stream.pages += 1;
    }

    /// What stands from `at` on, as far as it is agreed on.
    pub(super) fn agree(&mut self, mut at: u64, rule: &AgreementRule<'_>) -> Vec<Agreed> {
        let mut agreed = Vec::new();
        loop {
            let found: Vec<&Found> = self.told().filter_map(|it| it.at(at)).collect();
            let alike = found.iter().find(|it| found.iter().filter(|other| other == it).count() > rule.faulty);
            if let Some(found) = alike {
                agreed.push(Agreed::Found((*found).clone()));
                at += 1;
            } else if let Some(end) = self.lost(at, found.len(), rule) {
                agreed.push(Agreed::Lost(end - at));
                at = end;
            } else {
                break;
            }
        }
        self.0.values_mut().for_each(|it| it.pass(at));
        agreed
    }

    /// Up to where nothing can be had from `at` on, of which so many brokers have `found` something, not alike.
    fn lost(&self, at: u64, found: usize, rule: &AgreementRule<'_>) -> Option<u64> {
        let starts: Vec<u64> = self.told().map(|it| it.first).filter(|first| *first > at).collect();
        let first = *starts.iter().min()?;
        if starts.len() + rule.faulty >= rule.brokers {
            return Some(first);
        }
        let brokers = 0..u16::try_from(rule.brokers).expect("brokers have a limit");
        let mut silent = brokers.filter(|broker| !self.covers(*broker, at));
        let waits = silent.any(|broker| self.is_moving(broker) || (rule.waits)(broker));
        let ends = self.told().map(|it| it.end()).filter(|end| *end > at).min();
        let differ = found > rule.faulty && rule.may_agree;
        (!waits && !differ && starts.len() > rule.faulty).then(|| first.min(ends.unwrap_or(first)))
    }

    /// Whether it is known what a broker says of this place.
    pub(super) fn covers(&self, broker: u16, at: u64) -> bool {
        self.0.get(&broker).is_some_and(|it| it.pages > 0 && (it.first > at || it.end() > at))
    }

    /// Whether its last page brought a broker on, so that it has more to say.
    fn is_moving(&self, broker: u16) -> bool {
        self.0.get(&broker).is_some_and(|it| it.moved && it.pages < PAGES_MAX)
    }

    /// Who has more to say that is needed at this place, because what it said ends before.
    pub(super) fn behind(&self, at: u64) -> Vec<u16> {
        self.0.keys().copied().filter(|broker| self.is_moving(*broker) && !self.covers(*broker, at)).collect()
    }

    /// Where f + 1 brokers go on alike, if it is at this place.
    pub(super) fn pair(&self, at: u64, faulty: usize) -> Option<(u64, u64)> {
        believed(self.told().map(|it| it.next).filter(|next| next.0 == at), faulty)
    }

    /// What was said counts no more.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Who has said something.
    fn told(&self) -> impl Iterator<Item = &Stream> {
        self.0.values().filter(|it| it.pages > 0)
    }
}

/// What is agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Agreed {
    Found(Found),
    /// So many places are no longer kept.
    Lost(u64),
}

impl Stream {
    fn new(next: (u64, u64)) -> Stream {
        Stream { first: next.0, found: VecDeque::new(), next, asked: None, moved: false, pages: 0 }
    }

    fn end(&self) -> u64 {
        self.first + self.found.len() as u64
    }

    fn at(&self, place: u64) -> Option<&Found> {
        self.found.get(usize::try_from(place.checked_sub(self.first)?).ok()?)
    }

    /// What is before this place is dealt with.
    fn pass(&mut self, place: u64) {
        let gone = usize::try_from(place.saturating_sub(self.first)).unwrap_or(usize::MAX).min(self.found.len());
        self.found.drain(..gone);
        self.first += gone as u64;
    }
}

/// Pages of one broker that are waited for while others have none of it: whoever names few places a page stalls for as long.
const PAGES_MAX: u32 = 4096;

#[cfg(test)]
mod tests {
    use sealcast_broker::operation::Client;
    use sealcast_broker::state::{Notice, Run};

    use super::*;

    /// A page of ⊥ from `first` on, of which `lost` places before are no longer kept.
    fn page(lost: u64, first: u64, count: u64) -> Page {
        let notice = Notice { client: Client([0; 32]), subscription: 1, first, runs: vec![Run::Empty { count }] };
        Page { lost, notice, until: 100, publications: Vec::new() }
    }

    fn agree(streams: &mut Streams, at: u64, waits: bool) -> Vec<Agreed> {
        streams.agree(at, &AgreementRule { brokers: 4, faulty: 1, waits: &|_| waits, may_agree: true })
    }

    #[test]
    fn a_place_is_lost_when_nobody_is_left_who_could_say_what_stood_there() {
        let mut streams = Streams::default();
        (0..4).for_each(|broker| assert_eq!(streams.ask(broker, (7, 70)), (7, 70)));
        streams.take(0, page(0, 7, 1));
        streams.take(1, page(2, 9, 1));
        streams.take(2, page(3, 10, 1));
        assert_eq!(agree(&mut streams, 7, true), [], "the fourth may have what the first has");
        assert_eq!(agree(&mut streams, 7, false), [Agreed::Lost(1)], "but not for ever");
        streams.take(3, page(1, 8, 4));
        let found = Agreed::Found(Found::Empty);
        assert_eq!(agree(&mut streams, 8, true), [], "the first one's page ended before, and it has more");
        assert_eq!(streams.behind(8), [0]);
        assert_eq!(streams.ask(0, (7, 70)), (8, 100), "from where it ended");
        streams.take(0, page(0, 8, 2));
        assert_eq!(agree(&mut streams, 8, true), [found.clone(), found.clone(), found], "two at a time say the same");
    }

    #[test]
    fn rule_g2_what_no_page_can_be_is_not_taken_in() {
        let mut streams = Streams::default();
        streams.ask(0, (7, 70));
        streams.take(0, page(u64::MAX - 7, u64::MAX, 1));
        streams.take(0, page(1, 7, 1));
        streams.take(1, page(0, 7, 1));
        assert!(
            !streams.covers(0, 7) && !streams.covers(1, 7),
            "beyond all numbers, of another place, of nobody asked"
        );
        streams.take(0, page(0, 7, 1));
        streams.take(0, page(0, 7, 1));
        assert_eq!(streams.ask(0, (7, 70)), (8, 100), "and no page twice");
    }
}
