use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;

use sealcast_broker::cluster_file::{Addresses, Suite};
use sealcast_broker::genesis::Genesis;
use sealcast_crypto::ed25519::Key;
use sealcast_crypto::identity::keytext::export_seed;

use super::*;

/// A broker's folder that goes when the test ends.
struct Home(PathBuf);

impl Home {
    fn new(name: &str) -> Home {
        let folder = std::env::temp_dir().join(format!("sealcast-config-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let genesis = Genesis {
            name: "test".into(),
            brokers: (1..=4).map(public).collect::<BTreeSet<_>>(),
            quorum: 1,
            administrators: vec![Key::new(&public(9)).unwrap()],
            issuers: BTreeMap::new(),
        };
        let at =
            |port: u16| Addresses { gateway: format!("127.0.0.1:{port}"), order: format!("127.0.0.1:{}", port + 10) };
        let addresses = (7400..7404).map(at).collect();
        let (threshold, suite) = (3, Suite::default());
        let file = ClusterFile { genesis, addresses, threshold, suite, key: None, endorsement: None };
        let home = Home(folder);
        home.write(CLUSTER, &file.to_text());
        home.write(KEY, &format!("{}\n", *export_seed(&Secret::from_bytes([2; 32]))));
        fs::set_permissions(home.0.join(KEY), fs::Permissions::from_mode(0o600)).unwrap();
        home
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }

    /// What is said of this folder, without the folder's name.
    fn wrong(&self) -> String {
        let wrong = Config::read(&self.0).map(drop).expect_err("it is wrong").to_string();
        wrong.replace(&format!("{}/", self.0.display()), "")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn public(seed: u8) -> [u8; 32] {
    OriginKey::from_seed(&Secret::from_bytes([seed; 32])).public_bytes()
}

#[test]
fn a_folder_says_who_and_where_the_broker_is() {
    let home = Home::new("good");
    let config = Config::read(&home.0).unwrap();
    let own = usize::from(config.index);
    assert_eq!(config.cluster.broker_keys()[own], public(2));
    assert_eq!(config.gateway.port(), 7400 + config.index);
    assert_eq!(config.listen_order, config.order[own]);
    assert_eq!(config.settings, Settings::default());
    assert!(!format!("{config:?}").contains("SECRET"));
}

#[test]
fn settings_of_its_own_stand_in_a_file() {
    let home = Home::new("settings");
    home.write(SETTINGS, "listen-gateway = \"0.0.0.0:1\"\nshare-on = \"write\"\nblock-size = 16\nthreads = 4\n");
    let config = Config::read(&home.0).unwrap();
    assert_eq!(config.gateway.to_string(), "0.0.0.0:1");
    let settings = config.settings.clone();
    assert_eq!((settings.share_on, settings.block.batches, settings.threads), (ShareOn::Write, 16, Threads::each(4)));
    let given = Given { threads: Some(3), block_size: Some(8), ..Given::default() };
    let config = config.given(given);
    assert_eq!((config.settings.threads, config.settings.block.batches), (Threads::each(3), 8));
    drop(config);

    home.write(SETTINGS, "[threads]\ngateway = 5\nchecks = 3\n");
    let threads = Config::read(&home.0).unwrap().settings.threads;
    assert_eq!(threads, Threads { gateway: 5, checks: 3, ..Threads::default() }, "the others are not touched");
    home.write(SETTINGS, "threads = { engine = 0, clients = 2 }\n");
    let wrong = home.wrong();
    let both = "2 mistakes: 1:22: threads.engine is a whole number from 1 to 256; 1:25: there is no stage 'clients'; ";
    assert!(wrong.starts_with(&format!("broker.toml: {both}")), "{wrong}");
}

#[test]
fn all_mistakes_of_the_settings_are_said_at_once_with_their_places() {
    let home = Home::new("mistakes");
    let lines = [
        ("blocksize = 16", "there is no setting 'blocksize'"),
        ("block-size = 0", "block-size is a whole number from 1 to 65536"),
        ("block-bytes = 99_999_999", "block-bytes is a whole number from 1 to 8388608"),
        ("checked-together = 129", "checked-together is a whole number from 1 to 128"),
        ("threads = 257", "threads is a whole number from 1 to 256"),
        ("share-on = \"sometimes\"", "share-on is \"read\" or \"write\", not 'sometimes'"),
        ("metrics = 9600", "metrics is an address like \"127.0.0.1:9600\""),
        ("keep = \"2 \\u001b blocks\"", "keep: '2 \\u{1b} blocks' is neither 'everything'"),
    ];
    let text: Vec<&str> = lines.iter().map(|(line, _)| *line).collect();
    home.write(SETTINGS, &text.join("\n"));
    let wrong = home.wrong();
    assert!(wrong.starts_with("broker.toml: 8 mistakes: 1:1: "), "{wrong}");
    for (line, (text, said)) in (1..).zip(lines) {
        assert!(wrong.contains(&format!("{line}:")) && wrong.contains(said), "{text}: {wrong}");
    }
    home.write(SETTINGS, "block-size = \nthreads = [\n");
    assert!(home.wrong().starts_with("broker.toml: "), "{}", home.wrong());
    home.write(SETTINGS, "block-size = 65536\nblock-bytes = 0x80_0000\nbatch-size = 1\nthreads = 256\n");
    assert_eq!(Config::read(&home.0).unwrap().settings.block, sealcast_order::BlockSize::MAX);
}

#[test]
fn what_is_wrong_with_a_folder_is_said_with_what_to_do() {
    let home = Home::new("wrong");
    fs::set_permissions(home.0.join(KEY), fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(home.wrong(), "broker.key: others can read the broker's secret; chmod 600 broker.key");
    fs::set_permissions(home.0.join(KEY), fs::Permissions::from_mode(0o600)).unwrap();

    let good = fs::read_to_string(home.0.join(KEY)).unwrap();
    home.write(KEY, &good[..good.len() - 3]);
    assert!(home.wrong().ends_with("put the broker's own key file back"), "{}", home.wrong());
    home.write(KEY, &export_seed(&Secret::from_bytes([7; 32])));
    let wrong = home.wrong();
    assert!(
        wrong.contains("is not one of the brokers of 'test'; compare the keys of [[broker]] in cluster.toml"),
        "{wrong}"
    );
    home.write(KEY, &good);

    let text = fs::read_to_string(home.0.join(CLUSTER)).unwrap();
    home.write(CLUSTER, &text.replace("name = \"test\"", "name = \"other\""));
    assert!(home.wrong().starts_with("cluster.toml: "), "another genesis has another id: {}", home.wrong());
    fs::remove_file(home.0.join(CLUSTER)).unwrap();
    assert_eq!(home.wrong(), "cluster.toml: there is no such file; 'sealcast brokers init' makes one");
}

#[test]
fn two_brokers_do_not_run_in_one_folder() {
    let home = Home::new("twice");
    let first = Config::read(&home.0).unwrap();
    assert_eq!(home.wrong(), "lock: a broker runs in this folder already; stop it first, or name another folder");
    drop(first);
    Config::read(&home.0).unwrap();
}
