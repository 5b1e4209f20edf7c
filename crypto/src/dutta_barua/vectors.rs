//! The vectors in `crypto/vectors/dutta_barua.json`, made by another implementation.

use serde::Deserialize;

use super::element::Exponent;
use super::{Context, Contribution, Kind, Misbehaved, Ring, Round1, Round2, SEED_SLOT, Shares};
use crate::secret::Secret;
use crate::unhex;

#[derive(Deserialize)]
struct File {
    vectors: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Run {
    name: String,
    context: Setting,
    shares: String,
    exponents: Vec<String>,
    random1: Vec<String>,
    random2: Vec<String>,
    contributions: Vec<String>,
    sent_shares: Vec<String>,
    transcript: String,
    key: String,
    commitment: String,
    confirmations: Vec<String>,
    joined: Option<Joined>,
}

#[derive(Deserialize)]
struct Setting {
    group: String,
    compartment: u16,
    epoch: u32,
    attempt: u32,
    kind: String,
    roster: String,
    instance: String,
}

#[derive(Deserialize)]
struct Joined {
    ring: String,
    joiners: Vec<String>,
}

#[derive(Deserialize)]
struct Refused {
    name: String,
    expect: String,
    ring: String,
    seat: usize,
    contribution: Option<String>,
    share: Option<String>,
}

#[test]
fn runs_give_the_other_implementations_bytes() {
    for it in runs() {
        let (members, sent) = round2(&it);
        let contributions: Vec<_> = contributions(&it).iter().map(|it| it.encode().to_vec()).collect();
        assert_eq!(contributions, all(&it.contributions), "{}", it.name);
        assert_eq!(sent, all(&it.sent_shares), "{}", it.name);
        for (seat, me) in members.into_iter().enumerate() {
            let shares: Vec<_> = sent.iter().enumerate().map(|(i, share)| me.admit(i, share).unwrap()).collect();
            let key = me.finish(&shares).unwrap();
            assert_eq!(key.transcript().to_vec(), unhex(&it.transcript), "{}", it.name);
            assert_eq!(key.secret().expose().to_vec(), unhex(&it.key), "{}", it.name);
            assert_eq!(key.commitment().to_vec(), unhex(&it.commitment), "{}", it.name);
            assert_eq!(key.confirmation(seat).to_vec(), unhex(&it.confirmations[seat]), "{}", it.name);
            for (other, tag) in it.confirmations.iter().enumerate() {
                assert_eq!(key.confirmed_by(other, &unhex(tag)), Ok(()), "{}", it.name);
            }
        }
    }
}

#[test]
fn the_seed_of_a_join_is_the_other_implementations() {
    let runs = runs();
    let joins: Vec<_> = runs.iter().filter_map(|it| it.joined.as_ref().map(|joined| (it, joined))).collect();
    assert!(!joins.is_empty());
    for (it, joined) in joins {
        let old = runs.iter().find(|old| old.name == joined.ring).unwrap();
        let (mut members, sent) = round2(old);
        let me = members.remove(0);
        let shares: Vec<_> = sent.iter().enumerate().map(|(i, share)| me.admit(i, share).unwrap()).collect();
        let joiners: Vec<[u8; 32]> = joined.joiners.iter().map(|it| array(it)).collect();
        let seed = me.finish(&shares).unwrap().seed(&ring(it), &joiners);
        assert_eq!(seed.exponent().scalar().to_bytes().to_vec(), unhex(&it.exponents[SEED_SLOT]), "{}", it.name);
    }
}

#[test]
fn what_is_to_be_refused_is_refused_with_its_reason() {
    let (runs, refused) = (runs(), refused());
    assert!(refused.len() > 10);
    for it in refused {
        let run = runs.iter().find(|run| run.name == it.ring).unwrap();
        let got = match (&it.contribution, &it.share) {
            (Some(bytes), _) => Contribution::decode(&ring(run), it.seat, &unhex(bytes)).err(),
            (_, Some(bytes)) => round2(run).0[0].admit(it.seat, &unhex(bytes)).err(),
            _ => panic!("{}: nothing to refuse", it.name),
        };
        let expect = match it.expect.as_str() {
            "malformed" => Misbehaved::Malformed(it.seat),
            "unproved" => Misbehaved::Unproved(it.seat),
            "wrong share" => Misbehaved::WrongShare(it.seat),
            other => panic!("{}: expect {other}?", it.name),
        };
        assert_eq!(got, Some(expect), "{}", it.name);
    }
}

fn values() -> Vec<serde_json::Value> {
    let file: File = serde_json::from_str(include_str!("../../vectors/dutta_barua.json")).unwrap();
    file.vectors
}

fn runs() -> Vec<Run> {
    values().into_iter().filter(|it| it["expect"] == "agree").map(|it| serde_json::from_value(it).unwrap()).collect()
}

fn refused() -> Vec<Refused> {
    values().into_iter().filter(|it| it["expect"] != "agree").map(|it| serde_json::from_value(it).unwrap()).collect()
}

fn ring(run: &Run) -> Ring {
    let at = &run.context;
    let kind = match at.kind.as_str() {
        "setup" => Kind::Setup,
        "join" => Kind::Join,
        other => panic!("kind {other}?"),
    };
    let shares = match run.shares.as_str() {
        "plain" => Shares::Plain,
        "proved" => Shares::Proved,
        other => panic!("shares {other}?"),
    };
    let context = Context {
        group: &at.group,
        compartment: at.compartment,
        epoch: at.epoch,
        attempt: at.attempt,
        kind,
        roster: array(&at.roster),
        instance: array(&at.instance),
    };
    Ring::new(&context, run.exponents.len(), shares)
}

fn started(run: &Run) -> Vec<(Round1, Contribution)> {
    let start = |seat: usize| {
        let mut wide = [0; 64];
        wide[..32].copy_from_slice(&array(&run.exponents[seat]));
        let exponent = Exponent::reduce(&Secret::from_bytes(wide)).unwrap();
        Round1::start_with(&ring(run), seat, exponent, &Secret::from_bytes(array(&run.random1[seat])))
    };
    (0..run.exponents.len()).map(start).collect()
}

fn contributions(run: &Run) -> Vec<Contribution> {
    started(run).into_iter().map(|(_, sent)| sent).collect()
}

fn round2(run: &Run) -> (Vec<Round2>, Vec<Vec<u8>>) {
    let contributions = contributions(run);
    let finish = |(seat, (me, _)): (usize, (Round1, Contribution))| {
        let random = Secret::from_bytes(array(&run.random2[seat]));
        let (me, share) = me.finish_with(&contributions, &random).unwrap();
        (me, share.encode())
    };
    started(run).into_iter().enumerate().map(finish).unzip()
}

fn all(digits: &[String]) -> Vec<Vec<u8>> {
    digits.iter().map(|it| unhex(it)).collect()
}

fn array(digits: &str) -> [u8; 32] {
    unhex(digits).try_into().unwrap()
}
