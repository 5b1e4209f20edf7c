//! The scheme as a whole: who agrees, who is named, and the vectors that another implementation made.

use curve25519_dalek::ristretto::RistrettoPoint;
use curve25519_dalek::scalar::Scalar;
use proptest::prelude::*;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

use super::element::{Element, Exponent};
use super::*;
use crate::secret::Secret;

pub(super) fn context(group: &str, kind: Kind, attempt: u32) -> Context<'_> {
    Context { group, compartment: 0, epoch: 7, attempt, kind, roster: [1; 32], instance: [2; 32] }
}

/// What one run of a ring made public, and the keys that it gave.
pub(super) struct Run {
    pub(super) ring: Ring,
    pub(super) contributions: Vec<Contribution>,
    pub(super) shares: Vec<Share>,
    pub(super) keys: Vec<Key>,
}

/// All seats of a ring, honest, over bytes.
pub(super) fn run(ring: &Ring, seed: u64) -> Run {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let started = (0..ring.size()).map(|seat| Round1::start(ring, seat, &mut rng)).collect();
    finish(ring, started, &mut rng)
}

pub(super) fn finish(ring: &Ring, started: Vec<(Round1, Contribution)>, rng: &mut ChaCha20Rng) -> Run {
    let (round1, sent): (Vec<_>, Vec<_>) = started.into_iter().unzip();
    let received = |(seat, it): (usize, &Contribution)| Contribution::decode(ring, seat, &it.encode()).unwrap();
    let contributions: Vec<_> = sent.iter().enumerate().map(received).collect();
    let round2: Vec<_> = round1.into_iter().map(|it| it.finish(&contributions, rng).unwrap()).collect();
    let sent: Vec<_> = round2.iter().map(|(_, share)| share.encode()).collect();
    let admitted = |me: &Round2| sent.iter().enumerate().map(|(i, it)| me.admit(i, it).unwrap()).collect::<Vec<_>>();
    let shares = admitted(&round2[0].0);
    let keys = round2.into_iter().map(|(me, _)| {
        let shares = admitted(&me);
        me.finish(&shares).unwrap()
    });
    let keys = keys.collect();
    Run { ring: *ring, contributions, shares, keys }
}

/// Everybody up to round 2, for those who then misbehave.
fn until_round2(ring: &Ring, seed: u64) -> (Vec<Round2>, Vec<Vec<u8>>) {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let (round1, sent): (Vec<_>, Vec<_>) = (0..ring.size()).map(|seat| Round1::start(ring, seat, &mut rng)).unzip();
    round1.into_iter().map(|it| it.finish(&sent, &mut rng).map(|(me, share)| (me, share.encode())).unwrap()).unzip()
}

fn agree(keys: &[Key]) -> bool {
    keys.iter().all(|key| {
        let confirmed = (0..keys.len()).all(|seat| key.confirmed_by(seat, &keys[seat].confirmation(seat)).is_ok());
        confirmed && key.secret() == keys[0].secret() && key.commitment() == keys[0].commitment()
    })
}

#[test]
fn a_setup_of_any_size_agrees() {
    for n in (1..=9).chain([16, 33, 64]) {
        for shares in [Shares::Plain, Shares::Proved] {
            let run = run(&Ring::new(&context("g", Kind::Setup, 1), n, shares), n as u64);
            assert!(agree(&run.keys), "n = {n}, {shares:?}");
            assert!(run.shares.iter().all(|share| share.encode().len() == run.ring.share_len()));
        }
    }
}

#[test]
fn rule_a8_rings_of_one_attempt_are_independent() {
    let compartment = |compartment| {
        let context = Context { compartment, ..context("g", Kind::Setup, 1) };
        run(&Ring::new(&context, 4, Shares::Plain), 1) // the same randomness, even
    };
    let (a, b) = (compartment(0), compartment(1));
    assert!(a.keys[0].secret() != b.keys[0].secret());
    let bytes = a.contributions[0].encode();
    assert_eq!(Contribution::decode(&b.ring, 0, &bytes), Err(Misbehaved::Unproved(0)));
}

#[test]
fn a_join_agrees_with_the_passive_who_say_nothing() {
    let old = run(&Ring::new(&context("g", Kind::Setup, 1), 6, Shares::Plain), 1);
    for (joiners, shares) in [(1, Shares::Plain), (2, Shares::Proved), (5, Shares::Plain)] {
        let names: Vec<[u8; 32]> = (0..joiners).map(|j| [j; 32]).collect();
        let seats = join_ring(&[0, 1, 2, 3, 4, 5], &[10; 5][..names.len()]).unwrap();
        assert_eq!(seats[..3], [0, 1, 5]);
        let ring = Ring::new(&Context { epoch: 8, ..context("g", Kind::Join, 1) }, seats.len(), shares);
        let mut rng = ChaCha20Rng::seed_from_u64(2);
        let active = (0..seats.len()).map(|seat| match seat {
            SEED_SLOT => Round1::start_from_seed(&ring, seat, &old.keys[1].seed(&ring, &names), &mut rng),
            _ => Round1::start(&ring, seat, &mut rng),
        });
        let new = finish(&ring, active.collect(), &mut rng);
        let passive = [2, 3, 4].map(|old_seat: usize| {
            let following = Following::start(&ring, SEED_SLOT, &old.keys[old_seat].seed(&ring, &names));
            let round2 = following.finish(&new.contributions).unwrap();
            let shares: Vec<_> = (0..seats.len()).map(|i| round2.admit(i, &new.shares[i].encode()).unwrap()).collect();
            round2.finish(&shares).unwrap()
        });
        assert!(agree(&new.keys));
        for key in passive {
            assert!(key.secret() == new.keys[0].secret());
            assert!((0..seats.len()).all(|seat| key.confirmed_by(seat, &new.keys[seat].confirmation(seat)).is_ok()));
        }
        assert!(new.keys[0].secret() != old.keys[0].secret());
    }
}

/// One by one and in twos: who is passive in one join is active in another, and all have each epoch's key.
#[test]
fn a_group_that_grows_by_joins_has_one_key_all_along() {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let mut members = run(&Ring::new(&context("g", Kind::Setup, 1), 3, Shares::Plain), 1).keys;
    for epoch in 8..16 {
        let joining = 1 + epoch as usize % 2;
        let joiners: Vec<[u8; 32]> = (0..joining as u8).map(|j| [j; 32]).collect();
        let old: Vec<usize> = (0..members.len()).collect();
        let seats = join_ring(&old, &(members.len()..members.len() + joining).collect::<Vec<_>>()).unwrap();
        let ring = Ring::new(&Context { epoch, ..context("g", Kind::Join, 1) }, seats.len(), Shares::Plain);
        let active = (0..seats.len()).map(|seat| match seat {
            SEED_SLOT => Round1::start_from_seed(&ring, seat, &members[seats[seat]].seed(&ring, &joiners), &mut rng),
            _ => Round1::start(&ring, seat, &mut rng),
        });
        let active = active.collect();
        let new = finish(&ring, active, &mut rng);
        let mut keys: Vec<Option<Key>> = (0..members.len() + joining).map(|_| None).collect();
        for (seat, key) in new.keys.into_iter().enumerate() {
            keys[seats[seat]] = Some(key);
        }
        for (i, key) in keys.iter_mut().enumerate().filter(|(_, key)| key.is_none()) {
            let following = Following::start(&ring, SEED_SLOT, &members[i].seed(&ring, &joiners));
            *key = Some(following.finish(&new.contributions).unwrap().finish(&new.shares).unwrap());
        }
        let next: Vec<Key> = keys.into_iter().flatten().collect();
        assert_eq!(next.len(), members.len() + joining);
        assert!(next.iter().all(|key| key.secret() == next[0].secret()), "epoch {epoch}");
        assert!(next[0].secret() != members[0].secret());
        members = next;
    }
    assert_eq!(members.len(), 15);
}

#[test]
fn fewer_than_three_members_set_up_anew() {
    assert_eq!(join_ring(&[1, 2], &[3]), None);
    assert_eq!(join_ring(&[1, 2, 3], &[]), None);
    assert_eq!(join_ring(&[1, 2, 3], &[4, 5]), Some(vec![1, 2, 3, 4, 5]));
}

#[test]
fn the_passive_name_a_seed_seat_that_cheats() {
    let old = run(&Ring::new(&context("g", Kind::Setup, 1), 4, Shares::Plain), 1);
    let ring = Ring::new(&context("g", Kind::Join, 1), 4, Shares::Plain);
    let follow = || Following::start(&ring, SEED_SLOT, &old.keys[2].seed(&ring, &[[9; 32]]));
    // another exponent than the seed's
    let cheated = run(&ring, 3);
    assert_eq!(follow().finish(&cheated.contributions).err(), Some(Misbehaved::NotSeed(SEED_SLOT)));
    // the right exponent, another share
    let mut rng = ChaCha20Rng::seed_from_u64(4);
    let active = (0..4).map(|seat| match seat {
        SEED_SLOT => Round1::start_from_seed(&ring, seat, &old.keys[1].seed(&ring, &[[9; 32]]), &mut rng),
        _ => Round1::start(&ring, seat, &mut rng),
    });
    let honest = finish(&ring, active.collect(), &mut rng);
    let round2 = follow().finish(&honest.contributions).unwrap();
    let other = honest.shares[0].encode();
    assert_eq!(round2.admit(SEED_SLOT, &other), Err(Misbehaved::WrongShare(SEED_SLOT)));
    assert!(round2.admit(SEED_SLOT, &honest.shares[SEED_SLOT].encode()).is_ok());
}

#[test]
fn rule_g3_a_contribution_counts_in_its_own_session_and_seat_only() {
    let base = context("g", Kind::Setup, 1);
    let ring = Ring::new(&base, 3, Shares::Plain);
    let bytes = run(&ring, 1).contributions[0].encode();
    assert!(Contribution::decode(&ring, 0, &bytes).is_ok());
    assert_eq!(Contribution::decode(&ring, 1, &bytes), Err(Misbehaved::Unproved(1)), "another seat");
    assert_eq!(Contribution::decode(&ring, 3, &bytes), Err(Misbehaved::Unproved(3)), "no seat");
    let others = [
        Ring::new(&Context { group: "h", ..base }, 3, Shares::Plain),
        Ring::new(&Context { compartment: 1, ..base }, 3, Shares::Plain),
        Ring::new(&Context { epoch: 8, ..base }, 3, Shares::Plain),
        Ring::new(&Context { attempt: 2, ..base }, 3, Shares::Plain),
        Ring::new(&Context { kind: Kind::Join, ..base }, 3, Shares::Plain),
        Ring::new(&Context { roster: [0; 32], ..base }, 3, Shares::Plain),
        Ring::new(&Context { instance: [0; 32], ..base }, 3, Shares::Plain),
        Ring::new(&base, 4, Shares::Plain),
        Ring::new(&base, 3, Shares::Proved),
    ];
    for other in others {
        assert_eq!(Contribution::decode(&other, 0, &bytes), Err(Misbehaved::Unproved(0)), "{other:?}");
    }
}

#[test]
fn rule_g3_the_key_depends_on_the_whole_context() {
    let (x, random) =
        (|i: u8| Exponent::reduce(&Secret::from_bytes([i + 1; 64])).unwrap(), Secret::from_bytes([0; 32]));
    let key = |context: &Context<'_>| {
        let ring = Ring::new(context, 3, Shares::Plain);
        let (round1, sent): (Vec<_>, Vec<_>) =
            (0..3_u8).map(|i| Round1::start_with(&ring, i.into(), x(i), &random)).unzip();
        let (round2, shares): (Vec<_>, Vec<_>) =
            round1.into_iter().map(|it| it.finish_with(&sent, &random).unwrap()).unzip();
        round2.into_iter().next().unwrap().finish(&shares).unwrap()
    };
    let base = context("g", Kind::Setup, 1);
    assert!(key(&base).secret() == key(&base).secret());
    assert!(key(&base).secret() != key(&Context { epoch: 8, ..base }).secret());
    assert!(key(&base).secret() != key(&Context { instance: [9; 32], ..base }).secret());
}

#[test]
fn rule_a9_a_contribution_without_knowledge_is_refused() {
    let ring = Ring::new(&context("g", Kind::Setup, 1), 3, Shares::Plain);
    let honest = run(&ring, 1);
    // an X of which nobody knows x, under somebody else's proof; and an echo of X_0 by seat 1
    let mut forged = honest.contributions[1].encode();
    forged[..32].copy_from_slice(&Element::new(RistrettoPoint::mul_base(&Scalar::from(77_u8))).bytes);
    assert_eq!(Contribution::decode(&ring, 1, &forged), Err(Misbehaved::Unproved(1)));
    let echo = honest.contributions[0].encode();
    assert_eq!(Contribution::decode(&ring, 1, &echo), Err(Misbehaved::Unproved(1)));
}

#[test]
fn rule_a9_equal_contributions_name_both_for_more_than_two() {
    let equal = |n: usize| {
        let ring = Ring::new(&context("g", Kind::Setup, 1), n, Shares::Plain);
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let twin = || Exponent::reduce(&Secret::from_bytes([5; 64])).unwrap();
        let started: Vec<_> = (0..n)
            .map(|seat| match seat {
                0 | 1 => Round1::start_with(&ring, seat, twin(), &Secret::from_bytes([seat as u8; 32])),
                _ => Round1::start(&ring, seat, &mut rng),
            })
            .collect();
        let sent: Vec<_> = started.iter().map(|(_, it)| *it).collect();
        started.into_iter().next_back().unwrap().0.finish(&sent, &mut rng).map(|_| ())
    };
    for n in [3, 4, 8] {
        let refused = equal(n).unwrap_err();
        assert_eq!((refused, refused.culprits()), (Misbehaved::Equal(0, 1), vec![0, 1]));
    }
    assert_eq!(equal(2), Ok(()), "at n = 2 nothing hangs on it");
}

#[test]
fn rule_a9_a_wrong_share_is_named_where_proofs_are_demanded() {
    let ring = Ring::new(&context("g", Kind::Setup, 2), 5, Shares::Proved);
    let (members, sent) = until_round2(&ring, 1);
    let wrong = Element::new(RistrettoPoint::mul_base(&Scalar::from(3_u8))).bytes;
    for (culprit, honest) in sent.iter().enumerate() {
        let bytes = [&wrong[..], &honest[32..]].concat();
        for me in members.iter().enumerate().filter(|(seat, _)| *seat != culprit).map(|(_, me)| me) {
            let refused = me.admit(culprit, &bytes).unwrap_err();
            assert_eq!((refused, refused.culprits()), (Misbehaved::WrongShare(culprit), vec![culprit]));
            assert_eq!(me.admit(culprit, &honest[..32]), Err(Misbehaved::Malformed(culprit)), "no proof");
        }
    }
}

#[test]
fn a_wrong_share_without_proofs_breaks_the_run_for_all_but_names_nobody() {
    let ring = Ring::new(&context("g", Kind::Setup, 1), 4, Shares::Plain);
    let (members, mut sent) = until_round2(&ring, 1);
    sent[2] = Element::new(RistrettoPoint::mul_base(&Scalar::from(3_u8))).bytes.to_vec();
    for (seat, me) in members.into_iter().enumerate().filter(|(seat, _)| *seat != 2) {
        let shares: Vec<_> = (0..4).map(|i| me.admit(i, &sent[i]).unwrap()).collect();
        let failed = me.finish(&shares).unwrap_err();
        assert_eq!((failed, failed.culprits()), (Misbehaved::Unclosed, vec![]), "seat {seat}");
    }
}

/// Two insiders who shift their shares against each other keep ΣY = 0: keys differ and confirmation
/// shows it; with proofs they are named.
#[test]
fn rule_a9_two_who_shift_their_shares_are_seen() {
    let shift = |bytes: &mut Vec<u8>, delta: RistrettoPoint| {
        let value = Element::decode(bytes.first_chunk().unwrap()).unwrap().point + delta;
        bytes[..32].copy_from_slice(&Element::new(value).bytes);
    };
    let delta = RistrettoPoint::mul_base(&Scalar::from(3_u8));
    let plain = Ring::new(&context("g", Kind::Setup, 1), 5, Shares::Plain);
    let (members, mut sent) = until_round2(&plain, 1);
    shift(&mut sent[1], delta);
    shift(&mut sent[3], -delta);
    let honest = members.into_iter().enumerate().filter(|(seat, _)| [0, 2, 4].contains(seat));
    let keys: Vec<_> = honest
        .map(|(seat, me)| {
            let shares: Vec<_> = (0..5).map(|i| me.admit(i, &sent[i]).unwrap()).collect();
            (seat, me.finish(&shares).unwrap())
        })
        .collect();
    let confirms = |a: usize, b: usize| keys[a].1.confirmed_by(keys[b].0, &keys[b].1.confirmation(keys[b].0));
    assert_eq!(confirms(0, 1), Err(Misbehaved::Unconfirmed(2)));
    assert_eq!(confirms(0, 2), Ok(()), "0 and 4 are on the same side of the shift");
    assert_ne!(keys[0].1.commitment(), keys[1].1.commitment());

    let proved = Ring::new(&context("g", Kind::Setup, 2), 5, Shares::Proved);
    let (members, mut sent) = until_round2(&proved, 1);
    shift(&mut sent[1], delta);
    shift(&mut sent[3], -delta);
    assert_eq!(members[0].admit(1, &sent[1]), Err(Misbehaved::WrongShare(1)));
    assert_eq!(members[0].admit(3, &sent[3]), Err(Misbehaved::WrongShare(3)));
}

#[test]
fn rule_a9_a_key_is_confirmed_by_its_own_seat_only() {
    let ring = Ring::new(&context("g", Kind::Setup, 1), 3, Shares::Plain);
    let (mine, others) = (run(&ring, 1), run(&ring, 2));
    let key = &mine.keys[0];
    assert_eq!(key.confirmed_by(1, &mine.keys[1].confirmation(1)), Ok(()));
    assert_eq!(key.confirmed_by(2, &mine.keys[1].confirmation(1)), Err(Misbehaved::Unconfirmed(2)));
    assert_eq!(key.confirmed_by(1, &others.keys[1].confirmation(1)), Err(Misbehaved::Unconfirmed(1)));
    assert_eq!(key.confirmed_by(1, &mine.keys[1].confirmation(1)[..31]), Err(Misbehaved::Unconfirmed(1)));
    assert_eq!(key.confirmed_by(3, &mine.keys[1].confirmation(3)), Err(Misbehaved::Unconfirmed(3)), "no seat");
}

#[test]
fn rule_a13_the_commitment_binds_the_key() {
    let ring = Ring::new(&context("g", Kind::Setup, 1), 3, Shares::Plain);
    let (a, b) = (run(&ring, 1), run(&ring, 2));
    assert!(a.keys.iter().all(|key| key.commitment() == a.keys[0].commitment()));
    assert_ne!(a.keys[0].commitment(), b.keys[0].commitment());
    assert_ne!(a.keys[0].commitment(), *a.keys[0].secret().expose(), "and does not show it");
    assert_ne!(a.keys[0].transcript(), b.keys[0].transcript());
}

#[test]
fn only_canonical_points_are_contributions_and_only_the_trivial_share_is_zero() {
    let ring = Ring::new(&context("g", Kind::Setup, 1), 3, Shares::Plain);
    let honest = run(&ring, 1).contributions[0].encode();
    let with_point = |point: &[u8]| [point, &honest[32..]].concat();
    let mut unreduced = [0xFF; 32];
    (unreduced[0], unreduced[31]) = (0xED + 2, 0x7F); // p + 2
    for point in [[0; 32], [0xFF; 32], unreduced] {
        assert_eq!(Contribution::decode(&ring, 0, &with_point(&point)), Err(Misbehaved::Malformed(0)));
    }
    // q itself, as challenge or response
    let q = crate::unhex("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010");
    for at in [32, 64] {
        let mut bytes = honest;
        bytes[at..at + 32].copy_from_slice(&q);
        assert_eq!(Contribution::decode(&ring, 0, &bytes), Err(Misbehaved::Malformed(0)));
    }
    for n in 0..CONTRIBUTION_LEN {
        assert_eq!(Contribution::decode(&ring, 0, &honest[..n]), Err(Misbehaved::Malformed(0)));
    }
    // Y: the identity is wrong for n = 3, and anything else for n = 1 and 2
    let (members, _) = until_round2(&ring, 1);
    assert_eq!(members[0].admit(1, &[0; 32]), Err(Misbehaved::WrongShare(1)));
    let (members, sent) = until_round2(&Ring::new(&context("g", Kind::Setup, 1), 2, Shares::Plain), 1);
    assert_eq!(sent, [[0; 32], [0; 32]]);
    assert!(members[0].admit(1, &[0; 32]).is_ok());
    assert_eq!(members[0].admit(1, &honest[..32]), Err(Misbehaved::WrongShare(1)));
    assert_eq!(members[0].admit(2, &[0; 32]), Err(Misbehaved::Malformed(2)), "no seat");
}

#[test]
fn keys_and_seeds_do_not_print() {
    let ring = Ring::new(&context("g", Kind::Setup, 1), 1, Shares::Plain);
    let key = run(&ring, 1).keys.remove(0);
    assert_eq!(format!("{key:?} {:?}", key.seed(&ring, &[])), "Key(<redacted>) <redacted>");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_changed_bit_of_a_contribution_or_a_proved_share_is_refused(
        n in 1_usize..6,
        seat: prop::sample::Index,
        bit in 0..96_usize * 8,
    ) {
        let ring = Ring::new(&context("g", Kind::Setup, 2), n, Shares::Proved);
        let seat = seat.index(n);
        let run = run(&ring, 5);
        let flipped = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes
        };
        prop_assert!(Contribution::decode(&ring, seat, &flipped(&run.contributions[seat].encode())).is_err());
        let (members, sent) = until_round2(&ring, 5);
        prop_assert!(members[0].admit(seat, &sent[seat]).is_ok());
        prop_assert!(members[0].admit(seat, &flipped(&sent[seat])).is_err());
    }

    /// One member of any ring lies in any of these ways; all others name it, and nobody else.
    #[test]
    fn rule_a9_whoever_lies_is_named(n in 3_usize..8, liar: prop::sample::Index, lie in 0..6, seed: u64) {
        let ring = Ring::new(&context("g", Kind::Setup, 2), n, Shares::Proved);
        let liar = liar.index(n);
        let other = (liar + 1) % n;
        let run = run(&ring, seed);
        let (members, sent) = until_round2(&ring, seed);
        let mut rng = ChaCha20Rng::seed_from_u64(!seed);
        let x = Exponent::random(&mut rng);
        let publics: Vec<Element> = run.contributions.iter().map(|it| it.public).collect();
        // a share for the exponent x, with the proof that it is right for x G: true, but of another X
        let forged = |x: &Exponent| {
            let mut publics = publics.clone();
            publics[liar] = x.public();
            let (_, share) = Round2::start(&ring, liar, x, publics, &Secret::from_bytes([1; 32]));
            share.encode()
        };
        let earlier = Ring::new(&context("g", Kind::Setup, 1), n, Shares::Proved);
        let contribution = match lie {
            0 => Some(run.contributions[other].encode()),                      // an echo
            1 => Some(Round1::start(&earlier, liar, &mut rng).1.encode()),     // of an earlier attempt
            2 => Some(Round1::start(&ring, other, &mut rng).1.encode()),       // proved for another seat
            _ => None,
        };
        let share = match lie {
            3 => Some(sent[other].clone()),                                    // another's share
            4 => Some(forged(&x)),                                             // of another exponent
            5 => Some([&forged(&x)[..32], &sent[liar][32..]].concat()),        // under the right one's proof
            _ => None,
        };
        if let Some(bytes) = contribution {
            prop_assert_eq!(Contribution::decode(&ring, liar, &bytes).unwrap_err().culprits(), vec![liar]);
        }
        if let Some(bytes) = share {
            for me in members.iter().enumerate().filter(|(seat, _)| *seat != liar).map(|(_, me)| me) {
                prop_assert_eq!(me.admit(liar, &bytes).unwrap_err().culprits(), vec![liar]);
            }
        }
    }

    #[test]
    fn any_bytes_are_decoded_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200), seat in 0_usize..4) {
        let ring = Ring::new(&context("g", Kind::Setup, 2), 3, Shares::Proved);
        prop_assert!(Contribution::decode(&ring, seat, &bytes).is_err());
        prop_assert!(until_round2(&ring, 1).0[0].admit(seat, &bytes).is_err());
    }
}
