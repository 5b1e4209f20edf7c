//! The scheme in both suites, and the weaknesses of the printed one by number (S1 is in `attacks`).

use std::sync::Arc;

use proptest::prelude::*;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

use super::key::share_out;
use super::*;
use crate::group::{
    Element, P256, Parameters, ParametersError, Polynomial, PrimeGroup, Ristretto255, SharesError, Transcript,
    in_both_suites,
};
use crate::secret::Secret;

/// A key (t, n), its holders, a reader, and chance.
pub(super) struct System<G: PrimeGroup> {
    pub(super) key: Arc<PublicKey<G>>,
    pub(super) holders: Vec<KeyShare<G>>,
    pub(super) reader: Combiner<G>,
    pub(super) rng: ChaCha20Rng,
}

pub(super) fn system<G: PrimeGroup>(threshold: u16, holders: u16) -> System<G> {
    of(Parameters::new(b"test", threshold, holders))
}

fn of<G: PrimeGroup>(parameters: Parameters) -> System<G> {
    let mut rng = ChaCha20Rng::seed_from_u64(7);
    let (key, holders) = deal(parameters, &mut rng).unwrap();
    let key = Arc::new(key);
    System { reader: Combiner::new(key.clone()), key, holders, rng }
}

pub(super) fn label() -> Label {
    Label::new(b"hospital", 3).header("ward", "skin").access(b"role = doctor").operation(b"pub").under(1, 2)
}

impl<G: PrimeGroup> System<G> {
    pub(super) fn publish(&mut self, message: &[u8]) -> Checked<G> {
        let sealed = self.key.encrypt(&label(), message, &mut self.rng);
        self.key.check(self.key.bind(sealed, &label())).unwrap()
    }

    pub(super) fn shares(&self, it: &Checked<G>) -> Vec<Share<G>> {
        self.holders.iter().map(|holder| holder.share(it).unwrap()).collect()
    }

    pub(super) fn proved(&mut self, it: &Checked<G>) -> Vec<ProvedShare<G>> {
        self.holders.iter().map(|holder| holder.prove(it, &mut self.rng).unwrap()).collect()
    }

    pub(super) fn verified(&mut self, it: &Checked<G>) -> Vec<Verified<G>> {
        self.proved(it).iter().map(|share| self.key.verify_share(it, share).unwrap()).collect()
    }
}

pub(super) fn opened<G: PrimeGroup>(outcome: Result<Combined<G>, SharesError>) -> Option<Vec<u8>> {
    match outcome.unwrap() {
        Combined::Opened(message) => Some(message.to_vec()),
        _ => None,
    }
}

fn flipped(bytes: &[u8], bit: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[bit / 8] ^= 1 << (bit % 8);
    bytes
}

in_both_suites! {
    fn any_t_shares_open_with_integers_and_without = opens;
    /// S2: e covers c_1. S4: e covers com and C.
    fn s2_s4_no_part_of_a_ciphertext_can_be_exchanged = parts_are_bound;
    /// S3: a message has any length.
    fn s3_messages_have_any_length = lengths;
    /// S5: f + q is not f; the identity is no u.
    fn s5_a_ciphertext_has_one_encoding = one_encoding;
    /// S6: ḡ is nobody's choice.
    fn s6_g_bar_follows_from_system_and_h = g_bar_is_hashed;
    /// S7: a ciphertext is for one key, even where ḡ is shared.
    fn s7_a_ciphertext_is_for_one_key = one_key;
    /// S7: shares are for one epoch; ciphertexts outlive a refresh.
    fn s7_a_refresh_keeps_ciphertexts_and_voids_shares = refresh;
    /// S10: the executable operation is bound by the proof.
    fn s10_the_executable_operation_is_bound = operation_is_bound;
    /// S11, S14: ctid names everything: client, time, label and every byte of the ciphertext.
    fn s11_s14_an_id_names_one_publication = ids;
    /// S12: no holder answers for a ciphertext that it did not check under its key, so ⊥ needs no holder's word.
    fn s12_only_checked_ciphertexts_get_shares = only_checked;
    /// S13: indices are different, in range, enough, in any order.
    fn s13_indices_are_checked_and_order_does_not_matter = indices;
    /// S14: a share is for one ciphertext.
    fn s14_a_share_is_for_one_ciphertext = one_ciphertext;
    /// S16: t − 1 holders that do anything at all stop nobody.
    fn s16_active_corruption_of_t_minus_1_holders_stops_nobody = active_corruption;
    /// S17: the same random string twice gives different nonces.
    fn s17_a_repeated_random_string_repeats_no_nonce = hedged;
    /// S29: a holder checks its share against h_i.
    fn s29_a_share_is_checked_against_its_public_key = checked_share;
    /// S30: a key from elsewhere is checked, and ḡ, H_Δ and all hashes are computed anew from it.
    fn s30_a_key_from_elsewhere_is_checked_and_completed = from_elsewhere;
    fn fewer_than_t_shares_tell_nothing_usable = too_few;
    fn batches_find_what_single_checks_find = batches;
    fn a_false_share_is_named_and_the_rest_opens = false_share;
    fn a_publisher_at_fault_means_bottom_for_everybody = bottom;
}

fn opens<G: PrimeGroup>() {
    for (t, n) in [(1, 1), (2, 4), (3, 4), (3, 7), (2, 16)] {
        for delta in [1, Parameters::new(b"", t, n).delta] {
            let mut it = of::<G>(Parameters { delta, ..Parameters::new(b"test", t, n) });
            let sealed = it.publish(b"a record");
            let shares = it.shares(&sealed);
            for first in 0..=usize::from(n - t) {
                let some = &shares[first..first + usize::from(t)];
                assert_eq!(opened(it.reader.combine(&sealed, some)), Some(b"a record".to_vec()), "({t}, {n}) {delta}");
            }
            assert_eq!(opened(it.reader.combine(&sealed, &shares)), Some(b"a record".to_vec()));
            let verified = it.verified(&sealed);
            assert_eq!(opened(it.reader.combine_verified(&sealed, &verified)), Some(b"a record".to_vec()));
        }
    }
}

fn parts_are_bound<G: PrimeGroup>() {
    let mut it = system::<G>(2, 4);
    let (a, b) = (it.publish(b"one").ciphertext.clone(), it.publish(b"two").ciphertext.clone());
    type Exchange<G> = fn(&mut Ciphertext<G>, &Ciphertext<G>);
    let part: [Exchange<G>; 8] = [
        |a, b| a.u = b.u,
        |a, b| a.u_bar = b.u_bar,
        |a, b| a.w = b.w,
        |a, b| a.w_bar = b.w_bar,
        |a, b| a.f = b.f,
        |a, b| a.masked = b.masked,
        |a, b| a.commitment = b.commitment,
        |a, b| a.body = b.body.clone(),
    ];
    for exchange in part {
        let mut mixed = a.clone();
        exchange(&mut mixed, &b);
        assert_eq!(it.key.check(it.key.bind(mixed, &label())).err(), Some(Invalid));
    }
    assert!(it.key.check(it.key.bind(a, &label())).is_ok());
}

fn lengths<G: PrimeGroup>() {
    let mut it = system::<G>(2, 4);
    for length in [0, 1, 31, 32, 33, 1024, 100_000] {
        let message: Vec<u8> = (0..length).map(|i| i as u8).collect();
        let sealed = it.publish(&message);
        assert_eq!(sealed.ciphertext.encode().len(), Ciphertext::<G>::OVERHEAD + length);
        let shares = it.shares(&sealed);
        assert_eq!(opened(it.reader.combine(&sealed, &shares)), Some(message));
    }
}

fn one_encoding<G: PrimeGroup>() {
    let mut it = system::<G>(2, 4);
    let bytes = it.publish(b"m").ciphertext.encode();
    assert_eq!(Ciphertext::<G>::decode(&bytes).unwrap().encode(), bytes);
    let overhead = Ciphertext::<G>::OVERHEAD;
    assert_eq!(Ciphertext::<G>::decode(&bytes[..overhead - 1]), Err(DecodeError::Length));
    for place in 0..4 {
        let mut identity = bytes.clone();
        identity[place * G::POINT_LEN..(place + 1) * G::POINT_LEN].fill(0);
        assert_eq!(Ciphertext::<G>::decode(&identity), Err(DecodeError::Element));
        identity[place * G::POINT_LEN..(place + 1) * G::POINT_LEN].fill(0xff);
        assert_eq!(Ciphertext::<G>::decode(&identity), Err(DecodeError::Element));
    }
    let mut beyond = bytes;
    beyond[4 * G::POINT_LEN..][..32].fill(0xff);
    assert_eq!(Ciphertext::<G>::decode(&beyond), Err(DecodeError::Scalar));
}

fn g_bar_is_hashed<G: PrimeGroup>() {
    let it = system::<G>(2, 4);
    let expect = Transcript::<G>::new("gbar").add(b"test").element(it.key.h()).to_element();
    assert_eq!(*it.key.g_bar(), expect);
    let shares = (1..=4).map(|i| *it.key.share_of(i).unwrap()).collect();
    let elsewhere = PublicKey::new(Parameters::new(b"other", 2, 4), *it.key.h(), shares).unwrap();
    assert_ne!(*elsewhere.g_bar(), expect);
}

fn one_key<G: PrimeGroup>() {
    let mut it = system::<G>(2, 4);
    let sealed = it.publish(b"m");
    // Another h with the same ḡ, which the printed scheme would accept.
    let mut rng = ChaCha20Rng::seed_from_u64(8);
    let (other, _) = deal::<G>(Parameters::new(b"test", 2, 4), &mut rng).unwrap();
    let shares = (1..=4).map(|i| *other.share_of(i).unwrap()).collect();
    let g_bar = *it.key.g_bar();
    let other = PublicKey::with_g_bar(Parameters::new(b"test", 2, 4), *other.h(), g_bar, shares).unwrap();
    assert!(other.check(other.bind(sealed.ciphertext.clone(), &label())).is_err());
    assert!(other.check((*sealed).clone()).is_err());
    assert!(other.check_batch(vec![(*sealed).clone(); 3], &mut rng).iter().all(Result::is_err));
    // The same key as another system's, or with another Δ.
    for parameters in [
        Parameters { system: b"elsewhere".to_vec(), ..it.key.parameters().clone() },
        Parameters { delta: 1, ..it.key.parameters().clone() },
    ] {
        let shares = (1..=4).map(|i| *it.key.share_of(i).unwrap()).collect();
        let other = PublicKey::new(parameters, *it.key.h(), shares).unwrap();
        assert!(other.check(other.bind(sealed.ciphertext.clone(), &label())).is_err());
    }
}

fn refresh<G: PrimeGroup>() {
    let mut rng = ChaCha20Rng::seed_from_u64(9);
    let first = Parameters::new(b"test", 2, 4);
    let second = Parameters { epoch: 1, ..first.clone() };
    let polynomial = Polynomial::<G>::random(2, &mut rng);
    let (old, old_holders) = share_out(&first, &polynomial).unwrap();
    let (new, new_holders) = share_out(&second, &polynomial.refresh(&mut rng)).unwrap();
    assert_eq!((old.h(), old.lasting_hash()), (new.h(), new.lasting_hash()));
    assert_ne!(old.hash(), new.hash());

    let sealed = old.check(old.bind(old.encrypt(&label(), b"kept", &mut rng), &label())).unwrap();
    assert!(new.check((*sealed).clone()).is_ok());
    let mut reader = Combiner::new(Arc::new(new));
    let fresh: Vec<_> = new_holders.iter().map(|it| it.share(&sealed).unwrap()).collect();
    assert_eq!(opened(reader.combine(&sealed, &fresh)), Some(b"kept".to_vec()));
    // One share of each sharing open nothing; a proof of the old sharing is none of the new.
    let mixed = [old_holders[0].share(&sealed).unwrap(), fresh[1]];
    assert_eq!(reader.combine(&sealed, &mixed), Ok(Combined::NeedProofs));
    let proved = old_holders[0].prove(&sealed, &mut rng).unwrap();
    assert_eq!(reader.key().verify_share(&sealed, &proved), Err(BadShare(1)));
    let verified = old.verify_share(&sealed, &proved).unwrap();
    assert_eq!(reader.combine_verified(&sealed, &[verified]), Err(SharesError::Foreign(1)));
}

fn operation_is_bound<G: PrimeGroup>() {
    let mut it = system::<G>(2, 4);
    let said = label().executes(b"put stock 7");
    let sealed = it.key.encrypt(&said, b"m", &mut it.rng);
    assert!(it.key.check(it.key.bind(sealed.clone(), &said)).is_ok());
    for other in [label(), label().executes(b"put stock 8")] {
        assert!(it.key.check(it.key.bind(sealed.clone(), &other)).is_err());
    }
}

fn ids<G: PrimeGroup>() {
    let mut it = system::<G>(2, 4);
    let sealed = it.publish(b"m");
    let ciphertext = sealed.ciphertext.clone();
    assert_eq!(it.key.bind(ciphertext.clone(), &label()).id(), sealed.id());
    let mut seen = vec![*sealed.id()];
    for other in [Label { time: 4, ..label() }, Label { client: b"insurer".to_vec(), ..label() }] {
        let bound = it.key.bind(ciphertext.clone(), &other);
        seen.push(*bound.id());
        assert!(it.key.check(bound).is_err(), "a copy under another name is no publication");
    }
    let changes: [fn(&mut Ciphertext<G>); 4] = [
        |it| it.masked[0] ^= 1,
        |it| it.commitment[0] ^= 1,
        |it| it.body[0] ^= 1,
        |it| it.f = it.f + G::Scalar::from(1),
    ];
    for change in changes {
        let mut changed = ciphertext.clone();
        change(&mut changed);
        seen.push(*it.key.bind(changed, &label()).id());
    }
    let different: std::collections::BTreeSet<_> = seen.iter().collect();
    assert_eq!(different.len(), seen.len());
}

fn only_checked<G: PrimeGroup>() {
    let mut it = system::<G>(2, 4);
    let mut rng = ChaCha20Rng::seed_from_u64(8);
    let (other, holders) = deal::<G>(Parameters::new(b"test", 2, 4), &mut rng).unwrap();
    let sealed = it.publish(b"m");
    assert_eq!(holders[0].share(&sealed), Err(Invalid));
    assert_eq!(holders[0].prove(&sealed, &mut rng), Err(Invalid));
    let mut reader = Combiner::new(Arc::new(other));
    assert_eq!(reader.combine(&sealed, &it.shares(&sealed)), Err(SharesError::Foreign(1)));
    // What was seen before needs no proof, and nothing else passes for it.
    let (another, again) = (it.publish(b"m"), it.key.check_again((*sealed).clone(), sealed.seen()));
    assert_eq!(again.unwrap().id(), sealed.id());
    assert_eq!(it.key.check_again((*another).clone(), sealed.seen()).err(), Some(Invalid));
}

fn indices<G: PrimeGroup>() {
    let mut it = system::<G>(3, 4);
    let sealed = it.publish(b"m");
    let shares = it.shares(&sealed);
    let combine = |it: &mut System<G>, places: &[usize]| {
        let some: Vec<_> = places.iter().map(|i| shares[*i]).collect();
        it.reader.combine(&sealed, &some)
    };
    assert_eq!(combine(&mut it, &[0, 1]), Err(SharesError::TooFew { have: 2, need: 3 }));
    assert_eq!(combine(&mut it, &[]), Err(SharesError::TooFew { have: 0, need: 3 }));
    assert_eq!(combine(&mut it, &[0, 1, 1]), Err(SharesError::Duplicate(2)));
    for places in [[0, 1, 3], [3, 1, 0], [1, 3, 0]] {
        assert_eq!(opened(combine(&mut it, &places)), Some(b"m".to_vec()));
    }
    for index in [0, 5, u16::MAX] {
        let outside = Share { index, ..shares[0] };
        assert_eq!(it.reader.combine(&sealed, &[outside, shares[1], shares[2]]), Err(SharesError::Range(index)));
        let proved = ProvedShare { share: outside, ..it.proved(&sealed)[0] };
        assert_eq!(it.key.verify_share(&sealed, &proved), Err(BadShare(index)));
    }
    assert_eq!(Share::<G>::decode(&[&[0, 0], shares[0].u_i.bytes()].concat()), Err(DecodeError::Index));
    let verified = it.verified(&sealed);
    let twice = [verified[0], verified[1], verified[0]];
    assert_eq!(it.reader.combine_verified(&sealed, &twice), Err(SharesError::Duplicate(1)));
}

fn one_ciphertext<G: PrimeGroup>() {
    let mut it = system::<G>(2, 4);
    let (a, b) = (it.publish(b"one"), it.publish(b"two"));
    let (shares, proved, verified) = (it.shares(&a), it.proved(&a), it.verified(&a));
    assert_eq!(it.reader.combine(&b, &shares), Ok(Combined::NeedProofs));
    assert_eq!(it.key.verify_share(&b, &proved[2]), Err(BadShare(3)));
    assert_eq!(it.reader.combine_verified(&b, &verified), Err(SharesError::Foreign(1)));
    // Nor is holder 1's share holder 2's.
    let renamed = ProvedShare { share: Share { index: 2, ..*proved[0].share() }, ..proved[0] };
    assert_eq!(it.key.verify_share(&a, &renamed), Err(BadShare(2)));
    // The same ciphertext under another label is another publication.
    let elsewhere = it.key.bind(a.ciphertext.clone(), &Label { time: 9, ..label() });
    assert_eq!(it.key.verify_share(&elsewhere, &proved[0]), Err(BadShare(1)));
}

fn active_corruption<G: PrimeGroup>() {
    let mut it = system::<G>(3, 7);
    let (sealed, other) = (it.publish(b"m"), it.publish(b"other"));
    let (mut proved, foreign) = (it.proved(&sealed), it.proved(&other));
    // Two of seven lie: one sends a proof for something else, one a share that is none.
    proved[0] = foreign[0];
    proved[1].share.u_i = Element::new(*proved[1].share.u_i.point() + G::generator()).unwrap();
    let checked: Vec<_> = proved.iter().map(|share| it.key.verify_share(&sealed, share)).collect();
    assert_eq!(checked.iter().filter_map(|it| it.err()).collect::<Vec<_>>(), [BadShare(1), BadShare(2)]);
    let right: Vec<_> = checked.into_iter().flatten().collect();
    assert_eq!(opened(it.reader.combine_verified(&sealed, &right)), Some(b"m".to_vec()));
}

fn hedged<G: PrimeGroup>() {
    let mut it = system::<G>(2, 4);
    let (a, b) = (it.publish(b"one"), it.publish(b"two"));
    let random = Secret::from_bytes([0; 32]);
    let holder = &it.holders[0];
    let prove = |sealed: &Checked<G>| holder.prove_with::<oracle::Full>(sealed, holder.share(sealed).unwrap(), &random);
    let (p, q) = (prove(&a), prove(&b));
    assert_ne!(p.h_hat, q.h_hat, "two ciphertexts, one nonce");
    // With one nonce, (f − f') / (e − e') would be x.
    let e =
        |sealed: &Checked<G>, p: &ProvedShare<G>| it.key.share_relation::<oracle::Full>(sealed, p).unwrap().challenge;
    let x = (p.f - q.f) * G::invert(&(e(&a, &p) - e(&b, &q)));
    assert_ne!(x, *holder.x.scalar());
    // And fresh randomness gives another proof of the same.
    let again = holder.prove_with::<oracle::Full>(&a, *p.share(), &Secret::from_bytes([1; 32]));
    assert_ne!(again.h_hat, p.h_hat);
    assert!(it.key.verify_share(&a, &p).is_ok() && it.key.verify_share(&a, &again).is_ok());
}

fn checked_share<G: PrimeGroup>() {
    let it = system::<G>(2, 4);
    let x = it.holders[0].secret_bytes();
    assert!(KeyShare::new(&it.key, 1, &x).is_ok());
    assert_eq!(KeyShare::new(&it.key, 2, &x).err(), Some(KeyError::Mismatch(2)));
    assert_eq!(KeyShare::new(&it.key, 1, &Secret::from_bytes([0; 32])).err(), Some(KeyError::Mismatch(1)));
    for index in [0, 5] {
        assert_eq!(KeyShare::new(&it.key, index, &x).err(), Some(KeyError::Index(index)));
    }
    assert_eq!(format!("{:?}", it.holders[0]), "KeyShare(1, <redacted>)");
}

fn from_elsewhere<G: PrimeGroup>() {
    let it = system::<G>(2, 4);
    let bytes = it.key.encode();
    let again = PublicKey::<G>::decode(&bytes).unwrap();
    assert_eq!(
        (again.hash(), again.lasting_hash(), again.g_bar()),
        (it.key.hash(), it.key.lasting_hash(), it.key.g_bar())
    );
    assert_eq!(again.encode(), bytes);
    for wrong in [&bytes[..bytes.len() - 1], &[&bytes[..], &[0]].concat(), &[], &bytes[..9]] {
        assert_eq!(PublicKey::<G>::decode(wrong).err(), Some(KeyError::Encoding));
    }
    assert_eq!(PublicKey::<G>::decode(&flipped(&bytes, 0)).err(), Some(KeyError::Encoding), "another suite");
    // h_i of another polynomial: no sharing of h.
    let mut shares: Vec<_> = (1..=4).map(|i| *it.key.share_of(i).unwrap()).collect();
    shares.swap(1, 2);
    let refused = PublicKey::new(it.key.parameters().clone(), *it.key.h(), shares.clone());
    assert_eq!(refused.err(), Some(ParametersError::Inconsistent));
    let refused = PublicKey::new(it.key.parameters().clone(), *it.key.h(), shares[..3].to_vec());
    assert_eq!(refused.err(), Some(ParametersError::Inconsistent));
    for (t, n, error) in [(0, 4, ParametersError::Threshold(0)), (5, 4, ParametersError::Threshold(5))] {
        let parameters = Parameters { threshold: t, holders: n, ..it.key.parameters().clone() };
        assert_eq!(parameters.validate(), Err(error));
    }
    assert_eq!(Parameters { delta: 0, ..it.key.parameters().clone() }.validate(), Err(ParametersError::Delta));
    assert_eq!(
        Parameters { holders: 101, ..it.key.parameters().clone() }.validate(),
        Err(ParametersError::Holders(101))
    );
}

fn too_few<G: PrimeGroup>() {
    let mut it = system::<G>(3, 4);
    let sealed = it.publish(b"m");
    let shares = it.shares(&sealed);
    assert!(it.reader.combine(&sealed, &shares[..2]).is_err());
    // Two shares interpolate to a Z that is not this one's, alone or with any third element that is no share.
    let z = it.reader.interpolate(&shares[..3]);
    assert_ne!(it.reader.interpolate(&shares[..2]), z);
    for guess in [shares[0].u_i, sealed.ciphertext.u, *it.key.h()] {
        let third = Share { index: 3, u_i: guess };
        assert_eq!(it.reader.combine(&sealed, &[shares[0], shares[1], third]), Ok(Combined::NeedProofs));
    }
}

fn batches<G: PrimeGroup>() {
    let mut it = system::<G>(2, 4);
    let sealed: Vec<Checked<G>> = (0..9_u8).map(|i| it.publish(&[i])).collect();
    for wrong in [&[][..], &[0], &[8], &[3, 4], &[0, 1, 2, 3, 4, 5, 6, 7, 8]] {
        let mut batch: Vec<Labelled<G>> = sealed.iter().map(|it| (**it).clone()).collect();
        wrong.iter().for_each(|i| batch[*i] = it.key.bind(batch[*i].ciphertext.clone(), &Label::new(b"thief", 0)));
        let single: Vec<bool> = batch.iter().map(|one| it.key.check(one.clone()).is_ok()).collect();
        let found = it.key.check_batch(batch, &mut it.rng);
        assert_eq!(found.iter().map(Result::is_ok).collect::<Vec<_>>(), single);
        assert_eq!(single.iter().filter(|it| !**it).count(), wrong.len());
    }
    let mut shares: Vec<(&Labelled<G>, ProvedShare<G>)> = Vec::new();
    for one in &sealed {
        shares.extend(it.proved(one).into_iter().map(|share| (&**one, share)));
    }
    assert!(it.key.verify_shares(&shares, &mut it.rng).iter().all(Result::is_ok));
    shares[5].1.f = shares[5].1.f + G::Scalar::from(1);
    shares[6].1.share.index = 9;
    let found = it.key.verify_shares(&shares, &mut it.rng);
    let wrong: Vec<usize> = (0..found.len()).filter(|i| found[*i].is_err()).collect();
    assert_eq!(wrong, [5, 6]);
    assert!(it.key.verify_shares(&[], &mut it.rng).is_empty() && it.key.check_batch(vec![], &mut it.rng).is_empty());
}

fn false_share<G: PrimeGroup>() {
    let mut it = system::<G>(2, 4);
    let sealed = it.publish(b"m");
    let mut shares = it.shares(&sealed);
    shares[1].u_i = Element::new(*shares[1].u_i.point() + G::generator()).unwrap();
    assert_eq!(it.reader.combine(&sealed, &shares), Ok(Combined::NeedProofs));
    assert_eq!(opened(it.reader.combine(&sealed, &[shares[0], shares[2]])), Some(b"m".to_vec()));
    let mut proved = it.proved(&sealed);
    proved[1].share = shares[1];
    assert_eq!(it.key.verify_share(&sealed, &proved[1]), Err(BadShare(2)));
}

fn bottom<G: PrimeGroup>() {
    // A well-formed ciphertext with a body that its key does not open.
    let mut it = system::<G>(2, 4);
    let mut faulty = it.publish(b"m").ciphertext.clone();
    let (r, s) = (attacks::scalar::<G>(11), attacks::scalar::<G>(12));
    faulty = attacks::craft(&it.key, &label(), &r, &s, faulty.masked, faulty.commitment, faulty.body);
    let sealed = it.key.check(it.key.bind(faulty, &label())).expect("its proof is right");
    assert_eq!(it.reader.combine(&sealed, &it.shares(&sealed)), Ok(Combined::NeedProofs));
    let verified = it.verified(&sealed);
    for pair in [[0, 1], [2, 3], [0, 3]] {
        let pair = pair.map(|i| verified[i]);
        assert_eq!(it.reader.combine_verified(&sealed, &pair), Ok(Combined::Bottom(pair.to_vec())));
    }
}

#[test]
fn s8_the_vector_hash_is_injective_and_knows_no_components() {
    let hash = |parts: &[&str]| vector_hash(&parts.iter().map(|it| it.as_bytes().to_vec()).collect::<Vec<_>>());
    let all = [&[][..], &[""], &["", ""], &["ab"], &["a", "b"], &["b", "a"], &["ab", ""], &["", "ab"]];
    let different: std::collections::BTreeSet<_> = all.iter().map(|it| hash(it)).collect();
    assert_eq!(different.len(), all.len());
}

#[test]
fn s9_no_rule_of_access_becomes_a_header() {
    let one = Label::new(b"c", 1).header("A", "").header("B", "").access(b"C");
    let two = Label::new(b"c", 1).header("A", "").access(b"B").access(b"C");
    // As the printed label has them, one flat list of strings, they are the same …
    let flat = |it: &Label| -> Vec<Vec<u8>> {
        it.headers.iter().map(|it| it.topic.clone()).chain(it.access.iter().cloned()).collect()
    };
    assert_eq!(vector_hash(&flat(&one)), vector_hash(&flat(&two)));
    // … and here not.
    assert_ne!(one.hash(), two.hash());
    let (split, joint) = (Label::new(b"c", 1).header("ab", "c"), Label::new(b"c", 1).header("a", "bc"));
    assert_ne!(split.hash(), joint.hash());
    let (split, joint) = (Label::new(b"c", 1).access(b"ab").access(b"c"), Label::new(b"c", 1).access(b"abc"));
    assert_ne!(split.hash(), joint.hash());
}

#[test]
fn s15_the_threshold_is_no_number_of_rules() {
    let mut it = system::<Ristretto255>(2, 4);
    for rules in [0, 1, 5] {
        let label = (0..rules).fold(label(), |it, i| it.access(&[i]));
        let sealed = it.key.encrypt(&label, b"m", &mut it.rng);
        let sealed = it.key.check(it.key.bind(sealed, &label)).unwrap();
        assert_eq!(opened(it.reader.combine(&sealed, &it.shares(&sealed)[1..3])), Some(b"m".to_vec()));
    }
}

#[test]
fn suites_do_not_read_each_other() {
    let (mut a, mut b) = (system::<Ristretto255>(2, 4), system::<P256>(2, 4));
    assert!(PublicKey::<P256>::decode(&a.key.encode()).is_err());
    assert!(PublicKey::<Ristretto255>::decode(&b.key.encode()).is_err());
    assert!(Ciphertext::<P256>::decode(&a.publish(b"m").ciphertext.encode()).is_err());
    assert!(Ciphertext::<Ristretto255>::decode(&b.publish(b"m").ciphertext.encode()).is_err());
}

fn any_label() -> impl Strategy<Value = Label> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..5);
    let header = (bytes(), bytes()).prop_map(|(topic, value)| Header { topic, value });
    let (headers, access) = (prop::collection::vec(header, 0..4), prop::collection::vec(bytes(), 0..4));
    (bytes(), any::<u64>(), bytes(), any::<Option<[u8; 32]>>(), headers, access, any::<u64>(), any::<u64>()).prop_map(
        |(client, time, operation, executable, headers, access, epoch, policy)| Label {
            client,
            time,
            operation,
            executable,
            headers,
            access,
            epoch,
            policy,
        },
    )
}

proptest! {
    #[test]
    fn s9_labels_have_one_encoding(a in any_label(), b in any_label(), bit: prop::sample::Index) {
        let bytes = a.encode();
        prop_assert_eq!(Label::decode(&bytes), Ok(a.clone()));
        prop_assert_eq!(a == b, a.hash() == b.hash());
        if let Ok(other) = Label::decode(&flipped(&bytes, bit.index(bytes.len() * 8))) {
            prop_assert_ne!(other.hash(), a.hash());
        }
        prop_assert!(Label::decode(&bytes[..bytes.len() - 1]).is_err());
        prop_assert!(Label::decode(&[&bytes[..], &[0]].concat()).is_err());
    }

    #[test]
    fn rule_g2_any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for refused in [Label::decode(&bytes).is_err(), PublicKey::<Ristretto255>::decode(&bytes).is_err()] {
            prop_assert!(refused);
        }
        let _ = (Ciphertext::<Ristretto255>::decode(&bytes), Ciphertext::<P256>::decode(&bytes));
        let _ = (ProvedShare::<Ristretto255>::decode(&bytes), Share::<P256>::decode(&bytes));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_changed_bit_is_noticed(place: prop::sample::Index) {
        fn check<G: PrimeGroup>(place: prop::sample::Index) {
            let mut it = system::<G>(2, 4);
            let sealed = it.publish(b"message");
            let bytes = sealed.ciphertext.encode();
            if let Ok(changed) = Ciphertext::<G>::decode(&flipped(&bytes, place.index(bytes.len() * 8))) {
                assert!(it.key.check(it.key.bind(changed, &label())).is_err());
            }
            let proved = it.proved(&sealed);
            let bytes = proved[0].encode();
            assert_eq!(ProvedShare::decode(&bytes), Ok(proved[0]));
            if let Ok(changed) = ProvedShare::<G>::decode(&flipped(&bytes, place.index(bytes.len() * 8))) {
                assert!(it.key.verify_share(&sealed, &changed).is_err());
            }
            let shares = it.shares(&sealed);
            let bytes = shares[0].encode();
            assert_eq!(Share::decode(&bytes), Ok(shares[0]));
            if let Ok(changed) = Share::<G>::decode(&flipped(&bytes, place.index(bytes.len() * 8))) {
                let found = it.reader.combine(&sealed, &[changed, shares[1]]);
                assert!(matches!(found, Err(_) | Ok(Combined::NeedProofs)));
            }
        }
        check::<Ristretto255>(place);
        check::<P256>(place);
    }

    #[test]
    fn whoever_opens_reads_the_same(corrupt in 0_usize..4, first in 0_usize..4, second in 0_usize..4) {
        let mut it = system::<Ristretto255>(2, 4);
        let sealed = it.publish(b"m");
        let mut shares = it.shares(&sealed);
        shares[corrupt].u_i = Element::base(&(attacks::scalar::<Ristretto255>(5).scalar() + attacks::scalar::<Ristretto255>(6).scalar())).unwrap();
        match it.reader.combine(&sealed, &[shares[first], shares[second]]) {
            Err(error) => prop_assert_eq!(error, SharesError::Duplicate(first as u16 + 1)),
            Ok(Combined::Opened(message)) => prop_assert_eq!(&message[..], b"m"),
            Ok(outcome) => prop_assert!(outcome == Combined::NeedProofs && (first == corrupt || second == corrupt)),
        }
    }
}
