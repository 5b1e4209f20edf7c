//! Rights at delivery: who may publish what, and what must be signed (A1).

use std::collections::BTreeMap;
use std::sync::Arc;

use sealcast_wire::{Access, Domain, Dropped, Slot, limits};

/// Judges the messages of one epoch; remembers its verdicts, since certificates do not change within it.
#[derive(Default)]
pub(super) struct Policy {
    verdicts: BTreeMap<Slot, BTreeMap<Arc<str>, Verdict>>,
    /// The last one: messages come in runs.
    last: Option<(Slot, Arc<str>, Verdict)>,
    remembered: usize,
}

#[derive(Clone, Copy)]
struct Verdict {
    domain: Option<Domain>,
    may_publish: bool,
    must_sign: bool,
}

impl Policy {
    /// Whether a message that `from` sealed under `domain`, signed or not, may be delivered.
    ///
    /// # Errors
    /// [`Dropped::Policy`].
    pub(super) fn judge(
        &mut self,
        access: &dyn Access,
        from: Slot,
        domain: Domain,
        signed: bool,
        topic: &Arc<str>,
    ) -> Result<(), Dropped> {
        let verdict = match &self.last {
            Some((slot, last, verdict)) if *slot == from && Arc::ptr_eq(last, topic) => *verdict,
            _ => {
                let known = self.verdicts.get(&from).and_then(|of| of.get(topic)).copied();
                let verdict = known.unwrap_or_else(|| self.ask(access, from, topic));
                self.last = Some((from, topic.clone(), verdict));
                verdict
            }
        };
        let fits = verdict.domain == Some(domain) && verdict.may_publish && (signed || !verdict.must_sign);
        if fits { Ok(()) } else { Err(Dropped::Policy) }
    }

    fn ask(&mut self, access: &dyn Access, from: Slot, topic: &Arc<str>) -> Verdict {
        let verdict = Verdict {
            domain: access.domain(topic),
            may_publish: access.may_publish(from, topic),
            must_sign: access.must_sign(topic),
        };
        if self.remembered >= limits::VERDICTS_MAX {
            self.verdicts.clear();
            self.remembered = 0;
        }
        self.verdicts.entry(from).or_default().insert(topic.clone(), verdict);
        self.remembered += 1;
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slot 0 may publish everywhere; `orders` travels under Domain 1 and must be signed.
    struct Ward;

    impl Access for Ward {
        fn reads(&self, _: Slot, _: Domain) -> bool {
            true
        }
        fn domain(&self, topic: &str) -> Option<Domain> {
            Some(Domain(u16::from(topic == "orders")))
        }
        fn may_publish(&self, slot: Slot, topic: &str) -> bool {
            slot == Slot(0) || topic != "orders"
        }
        fn may_subscribe(&self, _: Slot, _: &str) -> bool {
            true
        }
        fn must_sign(&self, topic: &str) -> bool {
            topic == "orders"
        }
    }

    #[test]
    fn rule_a1_unsigned_or_unentitled_messages_are_dropped() {
        let mut policy = Policy::default();
        let orders: Arc<str> = "orders".into();
        for _ in 0..2 {
            assert_eq!(policy.judge(&Ward, Slot(0), Domain(1), true, &orders), Ok(()));
            assert_eq!(policy.judge(&Ward, Slot(0), Domain(1), false, &orders), Err(Dropped::Policy));
            assert_eq!(policy.judge(&Ward, Slot(1), Domain(1), true, &orders), Err(Dropped::Policy));
        }
    }

    #[test]
    fn rule_a8_a_message_under_another_compartments_key_is_dropped() {
        let mut policy = Policy::default();
        let orders: Arc<str> = "orders".into();
        assert_eq!(policy.judge(&Ward, Slot(0), Domain(0), true, &orders), Err(Dropped::Policy));
    }
}
