//! Brokers over one log, of which some lie.

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use sealcast_crypto::disclosure::Pair;
use sealcast_crypto::group::{P256, PrimeGroup, Ristretto255};
use sealcast_crypto::hash::Transcript;

use super::super::testing::opens_with_every_t;
use super::*;

type R = Ristretto255;

const CLUSTER: Cluster = Cluster([7; 32]);
const ROUND: u64 = 20;

/// A word on its way into the log.
type Pending = (u16, Vec<u8>);

/// What a broker does with a word that it should say: the words that it says instead.
type Tamper<G> = Box<dyn FnMut(&Dkg<G>, Vec<u8>) -> Vec<Vec<u8>>>;

struct World<G: PrimeGroup> {
    machines: Vec<Dkg<G>>,
    tampering: BTreeMap<u16, Tamper<G>>,
    pending: Vec<Pending>,
    log: Vec<(u64, u16, Vec<u8>)>,
    height: u64,
    made: BTreeMap<u16, Box<Made<G>>>,
    /// What each machine said of others, in its order.
    seen: BTreeMap<u16, Vec<Verdict>>,
}

/// What events say of brokers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Excluded(u16, Fault),
    Refuted { complainer: u16, dealer: u16 },
    Failed(Failure),
}

fn setup(brokers: u16, threshold: u16, index: u16) -> Setup {
    Setup { cluster: CLUSTER, epoch: 0, brokers, index, threshold, round_blocks: ROUND }
}

fn seed(index: u16) -> Secret<32> {
    Secret::from_bytes([index as u8 + 1; 32])
}

fn machine<G: PrimeGroup>(brokers: u16, threshold: u16, index: u16) -> Dkg<G> {
    Dkg::new(setup(brokers, threshold, index), seed(index)).unwrap()
}

impl<G: PrimeGroup> World<G> {
    fn new(brokers: u16, threshold: u16) -> World<G> {
        World {
            machines: (0..brokers).map(|i| machine(brokers, threshold, i)).collect(),
            tampering: BTreeMap::new(),
            pending: Vec::new(),
            log: Vec::new(),
            height: 10,
            made: BTreeMap::new(),
            seen: BTreeMap::new(),
        }
    }

    fn liar(mut self, broker: u16, tamper: impl FnMut(&Dkg<G>, Vec<u8>) -> Vec<Vec<u8>> + 'static) -> World<G> {
        self.tampering.insert(broker, Box::new(tamper));
        self
    }

    fn begin(&mut self) {
        self.machines.iter_mut().for_each(Dkg::begin);
        self.collect();
    }

    fn collect(&mut self) {
        for (index, machine) in (0..).zip(&mut self.machines) {
            while let Some(event) = machine.poll() {
                let said = match event {
                    Event::Say(word) => {
                        let words = match self.tampering.get_mut(&index) {
                            Some(tamper) => tamper(machine, word),
                            None => vec![word],
                        };
                        self.pending.extend(words.into_iter().map(|it| (index, it)));
                        continue;
                    }
                    Event::Made(made) => {
                        assert!(self.made.insert(index, made).is_none(), "a key is made once");
                        continue;
                    }
                    Event::Excluded { broker, fault, .. } => Verdict::Excluded(broker, fault),
                    Event::Refuted { complainer, dealer, .. } => Verdict::Refuted { complainer, dealer },
                    Event::Failed { why, .. } => Verdict::Failed(why),
                };
                self.seen.entry(index).or_default().push(said);
            }
        }
    }

    /// One block with these words.
    fn block(&mut self, words: Vec<Pending>) {
        self.height += 1;
        for (broker, word) in words {
            self.machines.iter_mut().for_each(|it| it.word(self.height, broker, &word));
            self.log.push((self.height, broker, word));
        }
        self.machines.iter_mut().for_each(|it| it.at(self.height));
        self.collect();
    }

    /// Blocks with all that is pending, until nothing happens any more.
    fn run(&mut self) {
        self.begin();
        for _ in 0..6 * ROUND {
            let words = mem::take(&mut self.pending);
            self.block(words);
        }
    }

    /// All machines saw the same, and made the same key; those who hold shares open with it.
    fn agreed(&self) -> &Made<G> {
        let said = self.said();
        assert_eq!(self.made.len(), self.machines.len(), "made by {:?}, {said:?}", self.made.keys());
        let first = &self.made[&0];
        assert!(self.made.values().all(|it| it.key.encode() == first.key.encode() && it.dealers == first.dealers));
        first
    }

    /// What all machines saw alike.
    fn said(&self) -> Vec<Verdict> {
        let first = self.seen.get(&0).cloned().unwrap_or_default();
        for index in 0..self.machines.len() as u16 {
            assert_eq!(self.seen.get(&index).cloned().unwrap_or_default(), first, "broker {index}");
        }
        first
    }

    fn shares(&self) -> Vec<KeyShare<G>> {
        let made = self.made.values().filter_map(|it| Some((&it.key, it.share.as_ref()?)));
        made.map(|(key, it)| KeyShare::new(key, it.index(), &it.secret_bytes()).unwrap()).collect()
    }
}

fn round_of(word: &[u8]) -> Round {
    Head::decode(word).unwrap().0.round
}

/// Says nothing in a round.
fn silent<G: PrimeGroup>(in_round: Round) -> impl FnMut(&Dkg<G>, Vec<u8>) -> Vec<Vec<u8>> {
    move |_, word| if round_of(&word) == in_round { vec![] } else { vec![word] }
}

/// Deals something else.
fn dealing<G: PrimeGroup>(
    mut change: impl FnMut(&Dkg<G>, &mut Dealing<G>),
) -> impl FnMut(&Dkg<G>, Vec<u8>) -> Vec<Vec<u8>> {
    move |machine, word| {
        let (head, body) = Head::decode(&word).unwrap();
        if head.round != Round::Deal {
            return vec![word];
        }
        let mut it = Dealing::decode(body).unwrap();
        change(machine, &mut it);
        vec![it.encode(head.binding, head.broker)]
    }
}

/// Seals a share for a receiver that is one too high. All brokers are members.
fn wrong_share<G: PrimeGroup>(machine: &Dkg<G>, it: &mut Dealing<G>, receiver: u16) {
    let Phase::Dealing { members, .. } = &machine.phase else { panic!("it deals while dealing") };
    let share = G::decode_scalar(machine.contribution.dealt.shares[usize::from(receiver)].expose()).unwrap();
    let share = G::scalar_bytes(&(share + G::Scalar::from(1)));
    let context = machine.binding.share(machine.setup.index, receiver);
    let sealed = machine.contribution.sender.seal(&members[&receiver].key, &context, &share);
    it.sealed[usize::from(receiver)] = sealed.try_into().unwrap();
}

/// Complains of dealer 0, disclosing what this chooses.
fn complaining<G: PrimeGroup>(
    mut disclose: impl FnMut(&Dkg<G>, &Dealing<G>) -> sealcast_crypto::disclosure::Disclosure<G>,
) -> impl FnMut(&Dkg<G>, Vec<u8>) -> Vec<Vec<u8>> {
    move |machine, word| {
        let Phase::Judging { dealings, .. } = &machine.phase else { return vec![word] };
        let it = Complaint { dealer: 0, disclosure: disclose(machine, &dealings[&0]) };
        vec![Complaint::encode_all(&[it], machine.binding, machine.setup.index)]
    }
}

fn all_honest<G: PrimeGroup>() {
    for (brokers, threshold) in [(4, 3), (4, 2), (7, 5)] {
        let mut world = World::<G>::new(brokers, threshold);
        world.run();
        let made = world.agreed();
        assert_eq!(made.dealers, (0..brokers).collect());
        assert_eq!(made.key.parameters(), &Parameters::new(&CLUSTER.0, threshold, brokers));
        assert!(world.said().is_empty());
        let shares = world.shares();
        assert_eq!(shares.iter().map(KeyShare::index).collect::<Vec<_>>(), (1..=brokers).collect::<Vec<_>>());
        opens_with_every_t(&made.key, &shares);
        assert!(world.machines.iter().all(|it| it.unheard().is_none() && it.deadline().is_none()));
    }
}

#[test]
fn rule_e8_honest_brokers_make_a_key_on_ristretto255() {
    all_honest::<Ristretto255>();
}

#[test]
fn rule_e8_honest_brokers_make_a_key_on_p256() {
    all_honest::<P256>();
}

#[test]
fn rule_e8_a_broker_that_never_speaks_is_excluded_and_has_no_share() {
    let mut world = World::<R>::new(4, 3).liar(3, |_, _| vec![]);
    world.run();
    assert_eq!(world.agreed().dealers, [0, 1, 2].into());
    assert_eq!(world.said(), [Verdict::Excluded(3, Fault::Silent(Round::Announce))]);
    assert!(world.made[&3].share.is_none());
    opens_with_every_t(&world.agreed().key, &world.shares());
}

#[test]
fn rule_e8_a_silent_dealer_is_excluded_and_still_holds_a_share() {
    let mut world = World::<R>::new(4, 3).liar(1, silent(Round::Deal));
    world.run();
    assert_eq!(world.agreed().dealers, [0, 2, 3].into());
    assert_eq!(world.said(), [Verdict::Excluded(1, Fault::Silent(Round::Deal))]);
    assert_eq!(world.shares().len(), 4);
    opens_with_every_t(&world.agreed().key, &world.shares());
}

#[test]
fn rule_e8_who_does_not_judge_complains_of_nobody() {
    let mut world = World::<R>::new(4, 3).liar(1, silent(Round::Judge));
    world.run();
    assert_eq!(world.agreed().dealers.len(), 4);
    assert!(world.said().is_empty());
}

fn wrong_shares<G: PrimeGroup>() {
    let mut world = World::<G>::new(4, 3).liar(3, dealing(|machine, it| wrong_share(machine, it, 0)));
    world.run();
    assert_eq!(world.agreed().dealers, [0, 1, 2].into());
    assert_eq!(world.said(), [Verdict::Excluded(3, Fault::Share(0))]);
    assert_eq!(world.shares().len(), 4);
    opens_with_every_t(&world.agreed().key, &world.shares());
}

#[test]
fn rule_e8_a_complaint_of_a_wrong_share_is_upheld_on_ristretto255() {
    wrong_shares::<Ristretto255>();
}

#[test]
fn rule_e8_a_complaint_of_a_wrong_share_is_upheld_on_p256() {
    wrong_shares::<P256>();
}

#[test]
fn rule_e8_a_complaint_of_a_share_that_does_not_open_is_upheld() {
    let mut world = World::<R>::new(4, 3).liar(2, dealing(|_, it| it.sealed[1] = [5; SEALED_LEN]));
    world.run();
    assert_eq!(world.said(), [Verdict::Excluded(2, Fault::Share(1))]);
    opens_with_every_t(&world.agreed().key, &world.shares());
}

#[test]
fn rule_e8_a_false_complaint_is_refuted_and_the_dealer_stays() {
    let honest = |machine: &Dkg<R>, it: &Dealing<R>| {
        machine.contribution.key.disclose(&it.sender, &machine.binding.share(0, machine.setup.index))
    };
    let mut world = World::<R>::new(4, 3).liar(3, complaining(honest));
    world.run();
    assert_eq!(world.agreed().dealers.len(), 4, "of a good share");
    assert_eq!(world.said(), [Verdict::Refuted { complainer: 3, dealer: 0 }]);

    let another = |machine: &Dkg<R>, _: &Dealing<R>| {
        let other = machine.contribution.sender.public();
        machine.contribution.key.disclose(other, &machine.binding.share(0, machine.setup.index))
    };
    let mut world = World::<R>::new(4, 3).liar(3, complaining(another));
    world.run();
    assert_eq!(world.agreed().dealers.len(), 4, "with a proof of something else");
    assert_eq!(world.said(), [Verdict::Refuted { complainer: 3, dealer: 0 }]);
}

#[test]
fn rule_e8_a_dealers_second_word_is_ignored() {
    let twice = |machine: &Dkg<R>, word: Vec<u8>| match round_of(&word) {
        Round::Announce => {
            let own = &machine.contribution.announcement;
            let second = Announcement { promise: [1; 32], ..own.clone() };
            vec![word, second.encode(machine.binding, machine.setup.index)]
        }
        Round::Deal => {
            let second = dealing(|_, it: &mut Dealing<R>| it.sealed[0] = [5; SEALED_LEN])(machine, word.clone());
            vec![word, second[0].clone()]
        }
        Round::Judge => {
            let second = complaining(|machine: &Dkg<R>, it| {
                machine.contribution.key.disclose(&it.sender, &machine.binding.share(0, machine.setup.index))
            })(machine, word.clone());
            vec![word, second[0].clone()]
        }
    };
    let mut world = World::<R>::new(4, 3).liar(3, twice);
    world.run();
    assert_eq!(world.agreed().dealers.len(), 4);
    assert!(world.said().is_empty());
    opens_with_every_t(&world.agreed().key, &world.shares());
}

#[test]
fn rule_e8_the_excluded_do_not_return_to_the_run() {
    let repent = |machine: &Dkg<R>, word: Vec<u8>| match round_of(&word) {
        Round::Deal => {
            let bad = dealing(|_, it: &mut Dealing<R>| it.commitment.swap(0, 1))(machine, word.clone());
            vec![bad[0].clone(), word]
        }
        _ => vec![word],
    };
    let mut world = World::<R>::new(4, 3).liar(3, repent);
    world.run();
    assert_eq!(world.said(), [Verdict::Excluded(3, Fault::Promise)]);
    assert_eq!(world.agreed().dealers, [0, 1, 2].into());
}

/// S30: without the promise, the last to speak chooses its part of the key after having seen the others'.
#[test]
fn rule_e8_s30_a_broker_deals_what_it_promised_before_it_saw_anything() {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let (secret, fresh) = feldman::deal::<R>(3, 4, &mut rng);
    let secret = Pair::new(secret);
    let choose = dealing(move |machine: &Dkg<R>, it| {
        it.commitment = fresh.commitment.clone();
        it.knowledge = secret.know(&machine.binding.proof(machine.setup.index, SECRET));
    });
    let mut world = World::<R>::new(4, 3).liar(3, choose);
    world.run();
    assert_eq!(world.said(), [Verdict::Excluded(3, Fault::Promise)]);
    let announced = world.log.iter().filter(|(_, _, word)| round_of(word) == Round::Announce);
    for (_, broker, word) in announced {
        let commitment = &world.machines[usize::from(*broker)].contribution.dealt.commitment;
        let shown = commitment.iter().any(|it| word.windows(it.bytes().len()).any(|part| part == it.bytes()));
        assert!(!shown, "broker {broker} shows what it will deal");
    }
}

/// Somebody who has no proof of his own could have others' shares disclosed to him, by complaints of his own dealing.
#[test]
fn rule_e8_what_another_broker_proved_cannot_be_copied() {
    let mut first = None;
    let mut world = World::<R>::new(4, 3);
    let copied = world.machines[0].contribution.announcement.clone();
    world = world.liar(3, move |machine, word| match round_of(&word) {
        Round::Announce => vec![copied.encode(machine.binding, 3)],
        _ => vec![word],
    });
    world.run();
    assert_eq!(world.said()[0], Verdict::Excluded(3, Fault::Proof(Round::Announce)));

    let mut world = World::<R>::new(4, 3);
    let (sender, context) = (&world.machines[0].contribution.sender, world.machines[0].binding.proof(0, SENDER));
    let stolen = (*sender.public(), sender.know(&context));
    world = world.liar(
        3,
        dealing(move |_, it: &mut Dealing<R>| {
            (it.sender, it.sender_knowledge) = stolen;
            first.get_or_insert(());
        }),
    );
    world.run();
    assert_eq!(world.said(), [Verdict::Excluded(3, Fault::Proof(Round::Deal))]);
}

#[test]
fn rule_e8_more_than_f_exclusions_fail_the_run_and_the_next_one_makes_a_key() {
    let once = || {
        |machine: &Dkg<R>, word: Vec<u8>| {
            let fails = machine.run() == 0 && round_of(&word) == Round::Deal;
            if fails { vec![] } else { vec![word] }
        }
    };
    let mut world = World::<R>::new(4, 3).liar(1, once()).liar(3, once());
    world.run();
    let failure = Failure::Excluded { excluded: 2, brokers: 4 };
    let silent = Fault::Silent(Round::Deal);
    assert_eq!(world.said(), [Verdict::Excluded(1, silent), Verdict::Excluded(3, silent), Verdict::Failed(failure)]);
    assert!(world.made.is_empty());

    let before = world.log.clone();
    world.machines[2].begin();
    world.collect();
    assert_eq!(world.pending.len(), 1, "one begins, and the others follow");
    // Words of the run that failed mean nothing in the next one.
    world.block(before.into_iter().map(|(_, broker, word)| (broker, word)).collect());
    world.run();
    let made = world.agreed();
    assert_eq!((made.run, made.dealers.len()), (1, 4));
    assert_eq!(world.said().len(), 3);
    opens_with_every_t(&made.key, &world.shares());
}

#[test]
fn rule_e8_late_words_are_ignored() {
    let mut world = World::<R>::new(4, 3).liar(3, silent(Round::Deal));
    world.begin();
    let words = mem::take(&mut world.pending);
    world.block(words);
    let deadline = world.machines[0].deadline().unwrap();
    let late = {
        let machine = &mut world.machines[3];
        machine.unheard().unwrap().to_vec()
    };
    let words = mem::take(&mut world.pending);
    world.block(words);
    while world.height < deadline {
        assert!(world.said().is_empty());
        world.block(vec![]);
    }
    assert_eq!(world.said(), [Verdict::Excluded(3, Fault::Silent(Round::Deal))], "at the deadline, and not before");
    world.block(vec![(3, late)]);
    world.run();
    assert_eq!(world.agreed().dealers, [0, 1, 2].into());
}

#[test]
fn rule_e8_a_word_at_the_deadline_is_in_time() {
    let mut world = World::<R>::new(4, 3);
    world.begin();
    let words = mem::take(&mut world.pending);
    world.block(words);
    let deadline = world.machines[0].deadline().unwrap();
    let mut words = mem::take(&mut world.pending);
    let last = words.pop().unwrap();
    world.block(words);
    while world.height + 1 < deadline {
        world.block(vec![]);
    }
    world.block(vec![last]);
    world.run();
    assert_eq!(world.agreed().dealers.len(), 4);
}

/// Four brokers that make the key of this epoch for this cluster.
fn making(cluster: Cluster, epoch: u32) -> World<R> {
    let mut world = World::new(4, 3);
    for (index, machine) in (0..).zip(&mut world.machines) {
        *machine = Dkg::new(Setup { cluster, epoch, ..setup(4, 3, index) }, seed(index)).unwrap();
    }
    world
}

#[test]
fn rule_e8_words_of_another_cluster_or_epoch_or_said_for_another_broker_are_ignored() {
    for (cluster, epoch) in [(Cluster([8; 32]), 0), (CLUSTER, 1)] {
        ignores_statements_of(making(cluster, epoch), making(CLUSTER, 0), 0);
        ignores_statements_of(making(CLUSTER, 0), making(cluster, epoch), epoch.into());
    }
    ignores_statements_of(making(CLUSTER, 1), making(CLUSTER, 2), 2);
}

/// The words of epoch 0 are bound as they always were: brokers find the key in those that were ordered long ago.
#[test]
fn rule_e8_the_binding_of_epoch_0_stays_and_that_of_a_later_epoch_names_it() {
    let bound = |epoch| *Binding::new::<R>(&Setup { epoch, ..setup(4, 3, 0) }, 6).as_bytes();
    let end =
        |it: Transcript| it.add(&6_u32.to_be_bytes()).add(&3_u16.to_be_bytes()).add(&4_u16.to_be_bytes()).add(&[1]);
    let first = end(Transcript::new("sealcast/v1/key ceremony").add(&CLUSTER.0)).finish();
    let later = Transcript::new("sealcast/v1/key ceremony of epoch").add(&CLUSTER.0).add(&9_u32.to_be_bytes());
    assert_eq!((bound(0), bound(9)), (first, end(later).finish()));
}

fn ignores_statements_of(mut other: World<R>, mut world: World<R>, epoch: u64) {
    other.run();
    let replay = |world: &mut World<R>| {
        world.block(other.log.iter().map(|(_, broker, word)| (*broker, word.clone())).collect());
        let shifted: Vec<_> = world.pending.iter().map(|(broker, word)| ((broker + 1) % 4, word.clone())).collect();
        world.block(shifted);
    };
    world.begin();
    for _ in 0..3 {
        replay(&mut world);
        let words = mem::take(&mut world.pending);
        world.block(words);
    }
    let made = world.agreed();
    assert_eq!((made.dealers.len(), made.key.parameters().epoch), (4, epoch));
    assert_ne!(made.key.h(), other.agreed().key.h(), "nothing that a seed gives serves two keys");
    assert!(world.said().is_empty());
}

/// A machine with the same seed and the same words is the same, wherever the other one died.
#[test]
fn rule_e8_a_broker_that_crashed_goes_on_from_the_log_and_its_seed() {
    let mut world = World::<R>::new(4, 3).liar(3, dealing(|machine, it| wrong_share(machine, it, 1)));
    world.run();
    let share = world.made[&1].share.as_ref().unwrap().secret_bytes();
    for dies_after in 0..=world.log.len() {
        let mut machine = machine::<R>(4, 3, 1);
        machine.begin();
        for (height, broker, word) in &world.log[..dies_after] {
            machine.word(*height, *broker, word);
        }
        let next = world.log[dies_after..].iter().find(|(_, broker, _)| *broker == 1).map(|(_, _, word)| &word[..]);
        // What it says now is what it said in its first life, if it is time to say it.
        let says = machine.unheard().map(<[u8]>::to_vec);
        assert!(says.is_none() || says.as_deref() == next, "after {dies_after} words");
        for (height, broker, word) in &world.log[dies_after..] {
            machine.word(*height, *broker, word);
        }
        machine.at(world.height);
        let made = std::iter::from_fn(|| machine.poll()).find_map(|it| match it {
            Event::Made(made) => Some(made),
            _ => None,
        });
        assert_eq!(made.unwrap().share.unwrap().secret_bytes(), share, "after {dies_after} words");
    }
}

#[test]
fn a_broker_that_lost_its_seed_learns_the_key_and_has_no_share() {
    let mut world = World::<R>::new(4, 3);
    world.run();
    let mut machine = Dkg::<R>::new(setup(4, 3, 1), seed(9)).unwrap();
    for (height, broker, word) in &world.log {
        machine.word(*height, *broker, word);
        assert!(machine.unheard().is_none() || *broker == 0, "it says nothing that contradicts its first life");
    }
    let made = std::iter::from_fn(|| machine.poll()).find_map(|it| match it {
        Event::Made(made) => Some(made),
        _ => None,
    });
    let made = made.unwrap();
    assert_eq!(made.key.encode(), world.agreed().key.encode());
    assert!(made.share.is_none());
}

/// A broker may be restarted by a newer program in the midst of a run: the same seed must give it the same words.
#[test]
fn the_words_of_these_seeds_are_these() {
    fn log<G: PrimeGroup>() -> String {
        let mut world = World::<G>::new(4, 3).liar(3, dealing(|_, it| it.sealed[1] = [5; SEALED_LEN]));
        world.run();
        let words = world.log.iter().fold(Transcript::new("words"), |it, (_, _, word)| it.add(word));
        words.add(&world.agreed().key.encode()).finish().iter().map(|byte| format!("{byte:02x}")).collect()
    }
    assert_eq!(log::<Ristretto255>(), "5913e5ac2f20e309ad013f364fe266a07f742ce2835476dfa71055395eae1d66");
    assert_eq!(log::<P256>(), "372c61ea4c62ecd06f2d7a3698e6fe01664f718f83c6e458119ca62aa216842b");
}

#[test]
fn setups_that_make_no_sense_are_refused() {
    let refused = |brokers, threshold, index| Dkg::<R>::new(setup(brokers, threshold, index), seed(0)).err();
    assert_eq!(refused(4, 1, 0), Some(SetupError::Alone));
    assert_eq!(refused(4, 3, 4), Some(SetupError::Index(4)));
    assert_eq!(refused(4, 5, 0), Some(SetupError::Parameters(ParametersError::Threshold(5))));
    let many = BROKERS_MAX as u16 + 1;
    assert_eq!(refused(many, 3, 0), Some(SetupError::Parameters(ParametersError::Holders(many))));
}

#[test]
fn truncated_and_changed_words_are_ignored_or_judged_and_never_panic() {
    let mut world = World::<R>::new(4, 3).liar(3, dealing(|machine, it| wrong_share(machine, it, 1)));
    world.run();
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    for changed in 0..world.log.len() {
        let word = &world.log[changed].2;
        for trial in 0..12 {
            let bytes = match trial {
                0..6 => word[..rng.next_u32() as usize % word.len()].to_vec(),
                6 => [&word[..], &[0]].concat(),
                _ => {
                    let mut bytes = word.clone();
                    bytes[rng.next_u32() as usize % word.len()] ^= 1 << (rng.next_u32() % 8);
                    bytes
                }
            };
            let mut machine = machine::<R>(4, 3, 0);
            for (at, (height, broker, word)) in world.log.iter().enumerate() {
                machine.word(*height, *broker, if at == changed { &bytes } else { word });
            }
            machine.at(u64::MAX);
            while machine.poll().is_some() {}
        }
    }
}

/// Up to f brokers, each misbehaving in its own way, and words that come in any order within the deadlines.
fn random_misbehaviour(seed: u64) {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let (brokers, f) = if rng.next_u32().is_multiple_of(4) { (7, 2) } else { (4, 1) };
    let threshold = if rng.next_u32().is_multiple_of(2) { 2 * f + 1 } else { f + 1 };
    let mut world = World::<R>::new(brokers, threshold);
    let mut liars = BTreeSet::new();
    while liars.len() < usize::from(f) {
        liars.insert((rng.next_u32() % u32::from(brokers)) as u16);
    }
    for liar in &liars {
        let mut rng = ChaCha20Rng::seed_from_u64(rng.next_u64());
        world = world.liar(*liar, move |machine, word| misbehave(machine, word, &mut rng));
    }
    world.begin();
    for _ in 0..6 * ROUND {
        // Some of what is pending, in any order; nothing waits for more than half a round.
        let mut waiting = mem::take(&mut world.pending);
        let mut words = Vec::new();
        while !waiting.is_empty() && (world.height.is_multiple_of(ROUND / 2) || !rng.next_u32().is_multiple_of(3)) {
            words.push(waiting.swap_remove(rng.next_u32() as usize % waiting.len()));
        }
        world.pending = waiting;
        world.block(words);
    }
    let made = world.agreed();
    let honest: BTreeSet<u16> = (0..brokers).filter(|it| !liars.contains(it)).collect();
    assert!(made.dealers.is_superset(&honest), "seed {seed}: honest dealers stay");
    let shares: Vec<KeyShare<R>> = world.shares().into_iter().filter(|it| honest.contains(&(it.index() - 1))).collect();
    assert_eq!(shares.len(), honest.len(), "seed {seed}: honest brokers hold shares");
    opens_with_every_t(&made.key, &shares);
}

/// One of the ways to lie, drawn anew for each word.
fn misbehave(machine: &Dkg<R>, word: Vec<u8>, rng: &mut ChaCha20Rng) -> Vec<Vec<u8>> {
    let receiver = (rng.next_u32() % u32::from(machine.setup.brokers)) as u16;
    match (rng.next_u32() % 6, round_of(&word)) {
        (0, _) => vec![],
        (1, _) => {
            let mut bytes = word;
            let at = rng.next_u32() as usize % bytes.len();
            bytes[at] ^= 1 << (rng.next_u32() % 8);
            vec![bytes]
        }
        (2, _) => vec![word[..rng.next_u32() as usize % word.len()].to_vec(), word],
        (3, Round::Deal) => dealing(|_, it: &mut Dealing<R>| it.commitment.swap(0, 1))(machine, word),
        (4 | 5, Round::Deal) => dealing(|machine: &Dkg<R>, it: &mut Dealing<R>| {
            let Phase::Dealing { members, .. } = &machine.phase else { return };
            if let Some(place) = members.keys().position(|it| *it == receiver) {
                it.sealed[place] = [receiver as u8; SEALED_LEN];
            }
        })(machine, word),
        (3..6, Round::Judge) => {
            let Phase::Judging { dealings, .. } = &machine.phase else { return vec![word] };
            let complain = |(dealer, it): (&u16, &Dealing<R>)| {
                let disclosure =
                    machine.contribution.key.disclose(&it.sender, &machine.binding.share(*dealer, machine.setup.index));
                Complaint { dealer: *dealer, disclosure }
            };
            let all: Vec<_> = dealings.iter().map(complain).collect();
            vec![Complaint::encode_all(&all, machine.binding, machine.setup.index)]
        }
        _ => vec![word],
    }
}

#[test]
fn rule_e8_whatever_f_brokers_do_the_honest_agree_on_a_key_and_open_with_it() {
    for seed in 0..200 {
        random_misbehaviour(seed);
    }
}
