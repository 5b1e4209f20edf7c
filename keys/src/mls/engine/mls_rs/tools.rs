//! What mls-rs works with, and asks while it works: one client a call or engine, made of a setup.

use std::collections::BTreeSet;
use std::time::Duration;

use mls_rs::client_builder::{
    BaseConfig, WithCryptoProvider, WithGroupStateStorage, WithIdentityProvider, WithKeyPackageRepo, WithMlsRules,
};
use mls_rs::group::{CommitOutput, CommitSecrets};
use mls_rs::{Client, Group, MlsMessage};
use mls_rs_core::crypto::CipherSuite as Number;
use mls_rs_core::extension::ExtensionType;
use mls_rs_core::time::MlsTime;
use sealcast_wire::Utc;

use super::failure::committing;
use super::identity::{Identities, Rules, extension_list, signing_identity};
use super::inspect;
use super::provider::{Provider, Signatures};
use super::record::PendingRecord;
use super::store::{PackageCell, StateCell};
use crate::mls::engine::{CommitError, LeafIndex, Reference, Setup, SetupError, Suite};
use crate::mls::judge::{Claim, Extension};

pub(super) type Config = WithGroupStateStorage<
    StateCell,
    WithKeyPackageRepo<
        PackageCell,
        WithMlsRules<Rules, WithIdentityProvider<Identities, WithCryptoProvider<Provider, BaseConfig>>>,
    >,
>;

/// What mls-rs asks while it works.
pub(super) struct Tools {
    pub(super) client: Client<Config>,
    pub(super) provider: Provider,
    identities: Identities,
    pub(super) rules: Rules,
    pub(super) states: StateCell,
    pub(super) packages: PackageCell,
    pub(super) own: Claim,
}

impl Tools {
    /// The tools of a setup; key packages that they make are valid for so long.
    ///
    /// # Errors
    /// [`SetupError::Algorithm`].
    pub(super) fn new(setup: &Setup, lifetime: Duration) -> Result<Tools, SetupError> {
        if setup.signer.key().public().algorithm() != setup.suite.algorithm() {
            return Err(SetupError::Algorithm);
        }
        let provider = Provider::new(setup.suite, setup.signer.clone());
        let identities = Identities::new(setup.judge.clone(), provider.clone());
        let rules = Rules::new(setup.judge.clone(), setup.handshake);
        let (states, packages) = (StateCell::default(), PackageCell::default());
        let signature_key = setup.signer.key().public().point().to_vec();
        let own = Claim { credential: setup.credential.clone(), signature_key };
        let kinds = setup.extension_kinds.iter().map(|kind| ExtensionType::new(*kind));
        let kinds = kinds.chain([ExtensionType::LAST_RESORT_KEY_PACKAGE]);
        let client = Client::builder()
            .crypto_provider(provider.clone())
            .identity_provider(identities.clone())
            .mls_rules(rules.clone())
            .key_package_repo(packages.clone())
            .group_state_storage(states.clone())
            .extension_types(kinds)
            .key_package_lifetime(lifetime)
            .signing_identity(signing_identity(&own), provider.handle(), Number::new(setup.suite.number()))
            .build();
        Ok(Tools { client, provider, identities, rules, states, packages, own })
    }

    /// The tools, if our own judge admits us.
    ///
    /// # Errors
    /// [`SetupError`].
    pub(super) fn admitted(setup: &Setup, extensions: &[Extension], utc: Utc) -> Result<Tools, SetupError> {
        let tools = Tools::new(setup, Duration::ZERO)?;
        tools.provider.at(utc);
        tools.identities.admit(&tools.own, extensions).map_err(SetupError::Refused)?;
        Ok(tools)
    }

    /// Makes the commit of a record; the group stays in its epoch, and uses up one of its handshake keys.
    ///
    /// # Errors
    /// [`CommitError`].
    pub(super) fn make(
        &self,
        group: &mut Group<Config>,
        record: &PendingRecord,
        only: Option<BTreeSet<Reference>>,
    ) -> Result<(CommitOutput, CommitSecrets, Signatures), CommitError> {
        let own = group.current_member_index();
        if record.remove.contains(&LeafIndex(own)) {
            return Err(CommitError::OwnRemoval);
        }
        // Lifetimes are judged by the caller, who may have no clock: mls-rs gets a time at which all are valid.
        let ends = record.add.iter().filter_map(|it| Some(inspect::key_package(it).ok()?.until)).min();
        let mut builder = group.commit_builder().commit_time(mls_time(ends.unwrap_or(record.utc)));
        for package in &record.add {
            let package = MlsMessage::from_bytes(package).map_err(|_| CommitError::Malformed)?;
            builder = builder.add_member(package).map_err(|error| committing(&error))?;
        }
        for leaf in &record.remove {
            builder = builder.remove_member(leaf.0).map_err(|_| CommitError::NoSuchMember)?;
        }
        if let Some(extensions) = &record.extensions {
            let list = extension_list(extensions);
            builder = builder.set_group_context_ext(list).map_err(|error| committing(&error))?;
        }
        self.rules.taking().only = only;
        let signed = record.signatures.clone();
        let (made, signatures) =
            self.provider.with_seed("commit", record.utc, &record.seed, signed, || builder.build_detached());
        self.rules.taking().only = None;
        let (output, secrets) = made.map_err(|error| committing(&error))?;
        // Ed25519 signs the same way each time.
        let random = self.provider.suite() != Suite::X25519;
        Ok((output, secrets, if random { signatures } else { Signatures::new() }))
    }
}

/// Seconds since 1970, of which mls-rs knows none before.
pub(super) fn mls_time(utc: Utc) -> MlsTime {
    MlsTime::from(u64::try_from(utc.0).unwrap_or(0))
}
