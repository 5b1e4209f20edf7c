//! Two sharings of one key: what is right under one is wrong under the other, and convicts nobody there.

use sealcast_crypto::group::Element;
use sealcast_crypto::hash::Transcript;
use sealcast_wire::Writer;

use super::*;

impl World {
    /// The next sharing of the same key, as a refresh makes it: F(0) stays, every x_i changes.
    fn refreshed(&self) -> World {
        let scalar = |share: &KeyShare<G>| {
            Scalar::from_canonical_bytes(*share.secret_bytes().expose()).expect("a share is a canonical scalar")
        };
        // x_i + 5i + 7i²
        let fresh = |share: &KeyShare<G>| {
            let i = Scalar::from(share.index());
            scalar(share) + Scalar::from(5_u64) * i + Scalar::from(7_u64) * i * i
        };
        let secrets: Vec<Scalar> = self.holders.iter().map(fresh).collect();
        let public = |x: &Scalar| Element::decode(&RistrettoPoint::mul_base(x).compress().to_bytes()).unwrap();
        let parameters = Parameters { epoch: 1, ..self.key().parameters().clone() };
        let key = PublicKey::new(parameters, *self.key().h(), secrets.iter().map(public).collect()).unwrap();
        let share = |(i, x): (u16, &Scalar)| KeyShare::new(&key, i, &Secret::from_bytes(x.to_bytes())).unwrap();
        let holders = (1..).zip(&secrets).map(share).collect();
        let brokers: Vec<_> = self.signing.iter().map(OriginKey::public_bytes).collect();
        let signing = (0..brokers.len()).map(|i| OriginKey::from_seed(&Secret::from_bytes([i as u8 + 1; 32])));
        let key = key.encode();
        let config = Config::new([1; 32], CLUSTER, &brokers, &key, &pin(&CLUSTER, &key)).unwrap();
        World { config, holders, signing: signing.collect(), rng: ChaCha20Rng::seed_from_u64(5) }
    }

    /// What broker b signs under this sharing: a proof of `of`, as one of `it`.
    fn signed(&mut self, b: u16, it: &Sealed, of: &Sealed) -> SignedShare<G> {
        let (_, bytes) = self.proved(b, it, of);
        let What::Proved(signed) = Attachment::from_bytes(&bytes).unwrap().what else { panic!("a proof") };
        signed
    }

    fn judge(&mut self, record: &[u8]) -> Option<Culprit> {
        evidence::judge(&self.config, record, &mut self.rng)
    }
}

/// The first sharing, and the second of the same key.
fn two() -> (World, World) {
    let old = World::new(3, 4);
    let new = old.refreshed();
    assert_eq!(old.key().lasting_hash(), new.key().lasting_hash());
    (old, new)
}

#[test]
fn rule_e4_a_share_that_is_right_under_one_sharing_convicts_nobody_under_the_next() {
    let (mut old, mut new) = two();
    let it = old.publish(5, b"payload");
    let checked = old.checked(&it);
    assert_eq!(checked.id(), new.checked(&it).id(), "ciphertexts outlive a refresh");
    let signed = old.signed(1, &it, &it);
    let record = evidence::false_share(&it.header, &checked, 1, &signed);
    assert_eq!((old.judge(&record), new.judge(&record)), (None, None));
    // It would be false under the next sharing, so nobody may pass it off as one of that.
    assert!(new.key().verify_share(&new.checked(&it), &signed.proved).is_err());
    for sharing in [new.key().sharing(), Sharing::Later(*old.key().hash())] {
        let renamed = evidence::false_share(&it.header, &checked, 1, &SignedShare { sharing, ..signed });
        assert_eq!((old.judge(&renamed), new.judge(&renamed)), (None, None));
    }
    let later = new.signed(1, &it, &it);
    let record = evidence::false_share(&it.header, &checked, 1, &later);
    assert_eq!((old.judge(&record), new.judge(&record)), (None, None));
    let renamed = evidence::false_share(&it.header, &checked, 1, &SignedShare { sharing: Sharing::First, ..later });
    assert_eq!((old.judge(&renamed), new.judge(&renamed)), (None, None));
}

#[test]
fn rule_e4_a_false_share_convicts_its_broker_under_the_sharing_that_it_names() {
    let (mut old, mut new) = two();
    let (it, other) = (old.publish(5, b"payload"), old.publish(6, b"other"));
    let checked = old.checked(&it);
    let (before, after) = (old.signed(0, &it, &other), new.signed(0, &it, &other));
    let record = evidence::false_share(&it.header, &checked, 0, &before);
    assert_eq!((old.judge(&record), new.judge(&record)), (Some(Culprit::Broker(0)), None));
    let record = evidence::false_share(&it.header, &checked, 0, &after);
    assert_eq!((old.judge(&record), new.judge(&record)), (None, Some(Culprit::Broker(0))));
    for at in 0..record.len() {
        let mut changed = record.clone();
        changed[at] ^= 1;
        assert_eq!(new.judge(&changed), None, "byte {at}");
    }
}

#[test]
fn rule_e4_a_publisher_is_convicted_by_shares_of_one_sharing() {
    let (mut old, mut new) = two();
    let it = crafted(&old, |_| RistrettoPoint::mul_base(&Scalar::from(77_u64)));
    let checked = old.checked(&it);
    let publisher = Some(Culprit::Publisher { client: [1; 32], number: 5 });
    let before: Vec<_> = (0..3).map(|b| old.signed(b, &it, &it)).collect();
    let after: Vec<_> = (0..3).map(|b| new.signed(b, &it, &it)).collect();
    let record = evidence::faulty(&Sharing::First, &it.header, &checked, &before);
    assert_eq!((old.judge(&record), new.judge(&record)), (publisher, None));
    let later = new.key().sharing();
    let record = evidence::faulty(&later, &it.header, &checked, &after);
    assert_eq!((old.judge(&record), new.judge(&record)), (None, publisher));
    let mixed = [&after[..2], &before[2..]].concat();
    let record = evidence::faulty(&later, &it.header, &checked, &mixed);
    assert_eq!((old.judge(&record), new.judge(&record)), (None, None));
}

#[test]
fn rule_e4_a_reader_of_the_next_sharing_blames_nobody_for_a_share_of_the_last() {
    let (mut old, mut new) = two();
    let it = old.publish(5, b"payload");
    let mut reader = new.client();
    let doubt = give(&mut reader, 3, &it, &[new.wrong(0, &it), new.share(1, &it), new.share(2, &it)]);
    assert_eq!(doubt, Did { asked: vec![3], ..nothing() });
    let late: Vec<_> = (0..3).map(|b| old.proof(b, &it)).collect();
    assert_eq!(attach(&mut reader, 3, &late), nothing());
    assert_eq!((reader.drops().of(Dropped::Stale), reader.liars().len()), (3, 0));
    let proofs: Vec<_> = (1..4).map(|b| new.proof(b, &it)).collect();
    assert_eq!(attach(&mut reader, 3, &proofs), opened(3, b"payload"));
}

/// Evidence as the version before wrote it, byte by byte, of the sharing that it had.
#[test]
fn rule_e4_evidence_in_the_form_of_the_first_sharing_still_convicts() {
    let (mut old, mut new) = two();
    let (it, other) = (old.publish(5, b"payload"), old.publish(6, b"other"));
    let proved = old.holders[2].prove(&old.checked(&other), &mut old.rng).unwrap().encode();
    let statement = Transcript::new("sealcast/v1/share").add(&CLUSTER).add(old.checked(&it).id()).add(&proved).finish();
    let mut w = Writer::new();
    w.u8(1).u16(2).bytes16(&it.header).u32(it.body.len() as u32).raw(&it.body);
    w.raw(&proved).raw(&old.signing[2].sign(&statement));
    let record = w.finish();
    assert_eq!((old.judge(&record), new.judge(&record)), (Some(Culprit::Broker(2)), None));
}
