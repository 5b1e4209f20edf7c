//! What would help after an error, for a program to say in its own words: a library does not know what its user types.

use serde::{Deserialize, Serialize};

/// What would help.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Remedy {
    /// A new identity, with an authority of its own; or plaintext, if that is meant.
    MakeIdentity,
    /// A look at the identities there are.
    ListIdentities,
    /// A look at the identity's certificate.
    ShowIdentity,
    /// Another process ends, or this one takes an identity of its own.
    OwnIdentity,
    /// The session that runs with this identity leaves, or this process takes an identity of its own.
    LeaveFirst,
    /// A look at the contexts there are.
    ListContexts,
    /// The group's authority certifies the key.
    AskForInvite {
        /// The public keys to certify, as `scpub1…`, where they are known.
        keys: Option<String>,
    },
    /// The group's authority grants a right.
    AskForRight {
        /// To publish; else to subscribe.
        publish: bool,
        /// The topic or pattern.
        topic: String,
    },
    /// A newer revocation list of the group's authority.
    LearnRevocations,
    /// A look at the network; at URL and authority of the others.
    CheckNetwork,
    /// A look at the group.
    ShowGroup,
    /// A member that leaves; a group that may have more members.
    MakeRoom,
    /// A look at its members.
    ListMembers,
    /// A look at the devices that wait to be let in.
    ListPending,
    /// The group joined instead of founded, or another name for it.
    JoinGroup,
    /// The device started, so that it leaves what members need to let it in.
    StartDevice,
    /// The certificate named instead of the name.
    NameCertificate,
    /// A new start; the eviction of whoever floods the group.
    StartAgain,
    /// The message published again, once the others are there again.
    PublishAgain,
    /// A pattern such as `ward3/+/pulse` or `ward3/#`; or a regular expression, asked for as one.
    WritePattern,
    /// The file's overwriting, if that is meant.
    Overwrite,
    /// A cluster of brokers, or its file from whoever runs it.
    MakeCluster,
    /// A look at those who give messages their places.
    ShowOrder,
    /// The same, then the message published again.
    ShowOrderAndPublishAgain,
    /// A look at whether the brokers of this cluster file run.
    CheckBrokers,
    /// A comparison of what the brokers say with what their operators know.
    CompareBrokers,
    /// 2f + 1 running brokers, which make the key together.
    AwaitKey,
    /// The brokers that hold shares; the folder of one that lost its own.
    FindShares,
    /// The return of most of the last members, or an operator's word that they are gone for good.
    ForcePrimary,
    /// A look at the clock here, and at whether the brokers go on.
    CheckClock,
    /// A certificate of an issuer that the cluster names.
    AskIssuer,
    /// An identity that these issuers vouch for.
    ChooseIdentity {
        /// Their names.
        issuers: Vec<String>,
    },
    /// A comparison of the certificate's issuer with those that the cluster names.
    CheckIssuer,
    /// A registration at the group's key distribution centre, whose file the principal takes in.
    RegisterPrincipal {
        /// Its name, where it is known.
        name: Option<String>,
    },
    /// A registration with the brokers.
    Register,
    /// A renewed certificate of the issuer.
    RenewCertificate,
    /// A new certificate of the issuer.
    NewCertificate,
    /// A new key, which is a new client, and a certificate for it.
    NewKey,
    /// A look at what the policy decides.
    ExplainPolicy,
    /// The end of a subscription of this client.
    EndSubscription,
    /// One more administrator's signature.
    AddSignature,
    /// Nothing: it is so already.
    NothingLeft,
    /// The administrators restore the client.
    RestoreClient {
        /// In hexadecimal digits, where it is known.
        client: Option<String>,
    },
    /// The receipt asked for when the message is published.
    ReceiptWhenPublishing,
    /// The receipt asked for when the message is read.
    ReceiptWhenReading,
    /// Nothing: it is ordered, and executed where the brokers run.
    AwaitExecution,
    /// A read that begins at the oldest publication that is kept.
    ReadFromOldest,
    /// The proofs that are kept, shown to whoever runs the brokers.
    ShowEvidence,
    /// Another relay; or the proof's removal, if its user trusts this one all the same.
    LeaveRelay {
        /// The file with the proof.
        proof: String,
    },
}
