//! The formats of docs/WIRE.md, 15, held fast: bytes and hashes of one short story, which a peer must get too.
//!
//! Keys are Ed25519 with seeds of 32 equal bytes: 1 the client, 2 the issuer 'exchange', 3 the only administrator,
//! 4 the only broker.

use std::collections::{BTreeMap, BTreeSet};

use sealcast_crypto::ed25519::Key;
use sealcast_crypto::hash::sha256;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::{Algorithm, SigningKey};
use sealcast_crypto::tdh2::Sharing;
use sealcast_wire::Utc;

use crate::fixture::{client, origin_key, publication, publish, subscribe};
use crate::genesis::{Genesis, Issuer};
use crate::operation::{Accusation, Action, Admin, Batch, Claim, Execute, Operation, Publication, Registration, check};
use crate::state::{Memory, State};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn rule_g9_formats_of_the_brokers_do_not_change_unnoticed() {
    let issuer = SigningKey::from_seed(Algorithm::Ed25519, &Secret::from_bytes([2; 32])).expect("a key");
    let genesis = Genesis {
        name: "golden".into(),
        brokers: BTreeSet::from([origin_key(4).public_bytes()]),
        quorum: 1,
        administrators: vec![Key::new(&origin_key(3).public_bytes()).expect("a key")],
        issuers: BTreeMap::from([("exchange".to_owned(), Issuer::Key(issuer.public().clone()))]),
    };
    let cluster = genesis.cluster();
    let claim = Claim::sign("exchange", &[7], (Utc(0), Utc(1000)), &[("desk", "fx")], origin_key(1).public(), &issuer);
    let mut admin = Admin::new(1, Action::Policy("read market/# if exchange:desk in [fx, \"a b\"]".parse().unwrap()));
    assert!(admin.sign(&genesis, &cluster, &origin_key(3)));
    let published = Publication {
        access: Some("exchange:desk = fx and (exchange:level >= 3 or not exchange:level < 0)".parse().unwrap()),
        associated: b"ad".to_vec(),
        execute: Execute::Increment { key: b"k".to_vec(), by: 5 },
        policy: 1,
        ..publication(&["market/eurusd", "price=105"], b"body")
    };
    let access = published.access.as_ref().expect("it was put there").to_bytes();
    let label = published.label(&client(1), 3).hash();
    let accusation = Operation::Accuse(Box::new(Accusation {
        sn: 3,
        client: client(1),
        number: 3,
        envelope: published.envelope(),
        ciphertext: b"ciphertext".to_vec(),
        sharing: Sharing::First,
        shares: b"shares".to_vec(),
    }));
    let mut restore = Admin::new(2, Action::Restore(client(1)));
    assert!(restore.sign(&genesis, &cluster, &origin_key(3)));
    let batch = Batch::sign(
        &cluster,
        &origin_key(1),
        0,
        vec![
            Operation::Register(Registration { intent: true, proof: claim.into() }),
            Operation::Administer(admin),
            subscribe("market/+ and price = 105"),
            publish(published),
            Operation::Advertise { scope: "market/#".parse().unwrap(), text: b"quotes".to_vec() },
        ],
    );
    let bytes = batch.to_bytes();
    let batches: Vec<_> = check(&cluster, vec![batch.clone()], |_| vec![]).into_iter().map(Result::unwrap).collect();
    let mut state = State::open(genesis.clone(), Memory::default()).expect("memory does not fail");
    let outbox = state.execute(1, Utc(10), &batches).expect("memory does not fail");
    assert!(outbox.results[0].outcomes.iter().all(|o| o.code as u16 == 0), "{:?}", outbox.results);
    let seen = [
        ("genesis", hex(&sha256(&genesis.to_bytes()))),
        ("cluster", hex(&cluster.0)),
        ("access", hex(&access)),
        ("label", hex(&label)),
        ("frame", hex(&sha256(&bytes))),
        ("digest", hex(&batch.digest(&cluster))),
        ("entry", hex(&outbox.publications[0].leaf())),
        ("results", hex(&outbox.results[0].leaf())),
        ("notice", hex(&outbox.notices[0].leaf())),
        ("advertisement", hex(&outbox.advertisements[0].leaf())),
        ("outbox root", hex(&outbox.root())),
        ("state root", hex(&outbox.state_root)),
        ("executed", hex(&outbox.executed(&cluster))),
        ("accusation", hex(&sha256(&accusation.to_bytes()))),
        ("restore", hex(&sha256(&Operation::Administer(restore).to_bytes()))),
    ];
    for ((what, value), expected) in seen.iter().zip(EXPECTED) {
        assert_eq!(value, expected, "{what} of\n{seen:#?}");
    }
}

/// In the order of `seen`. Genesis and batch as SHA-256 of their bytes.
const EXPECTED: [&str; 15] = [
    "af40631fad8f81c2e3cc521d6423e3dccc7c79432ef60d91437bff7f39b7575f",
    "1facaccbae02ab5cb474b48095ba621d765fafeb4c7aaf30ba33a7d7e9f642fd",
    "010100020401000865786368616e676500046465736b000266780200020406000865786368616e676500056c6576656c0000000000000003030403000865786368616e676500056c6576656c0000000000000000",
    "5e9ecb26dccdab440af0ddb0104414f0f121098e68ad64338ae6707865b09405",
    "e167bcca08162514b8323ba43a7827e7af0978d96ef2baa93f4231e82ccfa770",
    "9c9a59dab2768c7b04e989c9be08e6ea2a377a55c8d2403644ee4c56a5f2a8cb",
    "b028da637e78c37e7717784e847120519dddfd9b7b76b4aa8c8679035345a1f7",
    "9a57a3d3eb4a769668f152f5bc0de338e42f89668dd4656bddc38407a64df17d",
    "7c967fe0558e09df95ebcb99e6a72be3024f494663a47d81d8a30d17ba6de338",
    "57458832b3ca6a92e3406a790ab572311f8a9ef53cf5120ba8f23a99230acc7a",
    "1c844b59e99502c717a642aebcb4b86e7da71fd586e0eeae00305c713483e091",
    "33315936ccc88d1f8f2049b0032130f34d2190e92c8fe224078c254fcfa50c34",
    "418499f12db7a4d1ed2f3b33435c30ab2640a7835f6351a1d3215e83acb29105",
    "1a2b41ca8139154349b5958a661403dbff5d4e132fd7c23e90e9ca1c4586edb2",
    "8d3e02da491683dac5381d7a61e65ec53f23b036c772613e4e9c706dacb54236",
];
