//! What every test has: a client of the running namespace, and entities that test_rust.py makes for this test alone.

use azservicebus::primitives::service_bus_retry_policy::ServiceBusRetryPolicyExt;
use azservicebus::*;
use fe2o3_amqp_types::primitives::SimpleValue;
use std::time::Duration;

pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
pub const SESSION: &str = "one";
pub const SUBSCRIPTION: &str = "sub";
pub const SOON: Duration = Duration::from_secs(30);
/// How long to look for a message that must not come.
pub const NOT_COMING: Duration = Duration::from_millis(300);

/// The kinds of queues and topics on which a test runs.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    plain,
    sessions,
    partitioned,
}

/// A test on each kind of entity. It names the public calls that it shows: tools/sdk_calls.py reads them.
///
/// The crate ends the session of a client when a sender or receiver is dropped without `dispose`: tests keep theirs, in
/// variables, until they need the client no more.
#[macro_export]
macro_rules! shows {
    ($name:ident, $calls:literal, [$($kind:ident),+], |$bench:ident| $body:block) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            async fn shown($bench: &mut Bench<impl ServiceBusRetryPolicyExt + 'static>) -> Outcome $body

            $(
                #[tokio::test]
                async fn $kind() -> Outcome {
                    let client = connect(&setting("TANDEMBUS_CONNECTION_STRING")).await?;
                    let mut bench = Bench::new(client, stringify!($name), Kind::$kind);
                    tokio::time::timeout(2 * SOON, shown(&mut bench)).await?
                }
            )+
        }
    };
}

/// The same call on a receiver of messages or of a session.
#[macro_export]
macro_rules! ask {
    ($receiver:ident . $call:ident ( $($argument:expr),* )) => {
        match &mut $receiver {
            Receiver::Queue(one) => one.$call($($argument),*).await,
            Receiver::Session(one) => one.$call($($argument),*).await,
        }
    };
}

pub enum Receiver {
    Queue(ServiceBusReceiver),
    Session(ServiceBusSessionReceiver),
}

pub struct Bench<RP> {
    pub client: ServiceBusClient<RP>,
    pub kind: Kind,
    pub queue: String,
    pub topic: String,
}

pub fn setting(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is missing"))
}

pub async fn connect(
    connection_string: &str,
) -> Outcome<ServiceBusClient<impl ServiceBusRetryPolicyExt + 'static>> {
    Ok(ServiceBusClient::new_from_connection_string(connection_string, Default::default()).await?)
}

impl<RP: ServiceBusRetryPolicyExt + 'static> Bench<RP> {
    pub fn new(client: ServiceBusClient<RP>, test: &str, kind: Kind) -> Self {
        let queue = format!("{test}-{kind:?}");
        let topic = format!("{queue}-topic");
        Bench { client, kind, queue, topic }
    }

    /// One of several in the same session or, on partitioned entities, under the same key.
    pub fn message(&self, body: &str) -> ServiceBusMessage {
        let mut message = ServiceBusMessage::new(body);
        match self.kind {
            Kind::plain => {}
            Kind::sessions => message.set_session_id(SESSION.to_string()).unwrap(),
            Kind::partitioned => message.set_partition_key("together".to_string()).unwrap(),
        }
        message
    }

    pub fn messages(&self, bodies: &[&str]) -> Vec<ServiceBusMessage> {
        bodies.iter().map(|body| self.message(body)).collect()
    }

    pub async fn sender(&mut self) -> Outcome<ServiceBusSender> {
        Ok(self.client.create_sender(&self.queue, Default::default()).await?)
    }

    pub async fn send(&mut self, bodies: &[&str]) -> Outcome {
        let messages = self.messages(bodies);
        let mut sender = self.sender().await?;
        sender.send_messages(messages).await?;
        Ok(sender.dispose().await?)
    }

    /// A receiver of the queue; where sessions are required, of the session that `message` selects.
    pub async fn receiver(&mut self) -> Outcome<Receiver> {
        if self.kind == Kind::sessions {
            let one = self.client.accept_session_for_queue(&self.queue, SESSION, Default::default()).await?;
            return Ok(Receiver::Session(one));
        }
        Ok(Receiver::Queue(self.client.create_receiver_for_queue(&self.queue, Default::default()).await?))
    }
}

impl Receiver {
    /// Exactly so many: the crate may return before all have arrived.
    pub async fn several(
        &mut self,
        count: u32,
    ) -> Outcome<Vec<ServiceBusReceivedMessage>> {
        let mut this = self;
        let mut found = Vec::new();
        while (found.len() as u32) < count {
            found.extend(ask!(this.receive_messages(count - found.len() as u32))?);
        }
        Ok(found)
    }

    pub async fn one(&mut self) -> Outcome<ServiceBusReceivedMessage> {
        Ok(self.several(1).await?.remove(0))
    }

    pub async fn nothing_comes(&mut self) -> Outcome {
        let mut this = self;
        let found = ask!(this.receive_message_with_max_wait_time(NOT_COMING))?;
        assert!(found.is_none(), "found {found:?}");
        Ok(())
    }
}

pub fn bodies(messages: &[ServiceBusReceivedMessage]) -> Vec<String> {
    messages.iter().map(|one| String::from_utf8_lossy(one.body().unwrap()).into_owned()).collect()
}

pub fn property(message: &ServiceBusReceivedMessage, name: &str) -> Option<SimpleValue> {
    message.application_properties()?.0.get(name).cloned()
}
