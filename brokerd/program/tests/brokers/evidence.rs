//! What a broker keeps of others, judged by the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use sealcast_broker::genesis::Genesis;
use sealcast_broker::protocol;
use sealcast_brokerd::evidence::{EvidenceStore, convicts};
use sealcast_order::Evidence;
use sealcast_order_engine::{SigningSeed, Simplex};
use sealcast_order_testing::two_votes;
use sealcast_wire::limits;

#[test]
fn rule_e4_what_a_shelf_keeps_convicts_the_broker_that_signed_it_and_changed_it_convicts_nobody() {
    let folder = std::env::temp_dir().join(format!("sealcast-evidence-proofs-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    let seeds: Vec<SigningSeed> = (1..5).map(|i| SigningSeed::new(&[i; 32])).collect();
    let keys: BTreeSet<[u8; 32]> = seeds.iter().map(SigningSeed::public).collect();
    let (administrators, issuers) = (Vec::new(), BTreeMap::new());
    let genesis = Genesis { name: "test".into(), brokers: keys.clone(), quorum: 1, administrators, issuers };
    let all: Vec<[u8; 32]> = keys.iter().copied().collect();
    let liar = all.iter().position(|key| *key == seeds[0].public()).expect("it is one of them");
    let evidence = two_votes(&all, &genesis.cluster().0, &seeds[0], 7);
    assert_eq!((evidence.broker, evidence.view), (liar, 7));

    let evidence_store = EvidenceStore::open(&folder, &genesis).expect("a new folder");
    let path = evidence_store.keep(&evidence).expect("written").expect("new");
    let text = fs::read_to_string(&path).expect("it is there");
    let broker = u16::try_from(liar).expect("four brokers");
    let report = protocol::Report { broker, at: 7, misbehaviour: protocol::Misbehaviour::Equivocated };
    assert_eq!(convicts(&Simplex, &genesis, &text), Some(report));
    assert_eq!(evidence_store.proofs(), [(report, evidence.proof.clone())]);

    let proof = hex::encode(&evidence.proof);
    for at in (0..proof.len()).step_by(7) {
        let other = if proof.as_bytes()[at] == b'0' { "1" } else { "0" };
        let changed = format!("{}{other}{}", &proof[..at], &proof[at + 1..]);
        assert_eq!(convicts(&Simplex, &genesis, &text.replace(&proof, &changed)), None, "digit {at}");
    }
    assert_eq!(convicts(&Simplex, &genesis, &text.replace(&proof, &proof[2..])), None);
    let other = text.replace(&format!("\"broker\": {broker}"), &format!("\"broker\": {}", (broker + 1) % 4));
    assert!(other != text && convicts(&Simplex, &genesis, &other).is_none(), "another one is named");
    let other = Genesis { name: "another".into(), ..genesis.clone() };
    assert_eq!(convicts(&Simplex, &other, &text), None, "of another cluster");

    fs::write(&path, "{").expect("damaged");
    assert_eq!(evidence_store.proofs(), []);
    let long = Evidence { view: 9, proof: vec![0; limits::EVIDENCE_BYTES_MAX + 1], ..evidence };
    assert!(evidence_store.keep(&long).expect("not written").is_none());
    let _ = fs::remove_dir_all(&folder);
}
