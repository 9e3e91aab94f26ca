use crate::bench::*;
use crate::{ask, shows};
use azservicebus::primitives::service_bus_retry_policy::ServiceBusRetryPolicyExt;
use azservicebus::receiver::DeadLetterOptions;
use azservicebus::*;
use fe2o3_amqp_types::primitives::{OrderedMap, SimpleValue};
use serde_amqp::Value;

fn changed() -> Option<OrderedMap<String, Value>> {
    let mut properties = OrderedMap::new();
    properties.insert("tried".to_string(), Value::from(true));
    Some(properties)
}

shows!(
    completed_messages_do_not_come_again,
    "Receiver::complete_message Receiver::receive_message_with_max_wait_time",
    [plain, sessions, partitioned],
    |bench| {
        bench.send(&["1", "2"]).await?;
        let mut receiver = bench.receiver().await?;
        for _ in 0..2 {
            let found = receiver.one().await?;
            ask!(receiver.complete_message(&found))?;
        }
        receiver.nothing_comes().await?;
        assert!(ask!(receiver.peek_message(None))?.is_none());
        Ok(())
    }
);

shows!(
    an_abandoned_message_comes_again,
    "Receiver::abandon_message",
    [plain, sessions, partitioned],
    |bench| {
        bench.send(&["again"]).await?;
        let mut receiver = bench.receiver().await?;
        let found = receiver.one().await?;
        ask!(receiver.abandon_message(&found, changed()))?;
        let again = receiver.one().await?;
        assert_eq!(again.sequence_number(), found.sequence_number());
        assert_eq!(again.delivery_count(), Some(2));
        assert_eq!(property(&again, "tried"), Some(SimpleValue::from(true)));
        Ok(())
    }
);

shows!(
    a_deferred_message_is_received_by_its_number,
    "Receiver::defer_message Receiver::receive_deferred_message Receiver::receive_deferred_messages \
     Receiver::complete_message",
    [plain, sessions, partitioned],
    |bench| {
        bench.send(&["1", "2", "3"]).await?;
        let mut receiver = bench.receiver().await?;
        let mut numbers = Vec::new();
        for found in receiver.several(3).await? {
            ask!(receiver.defer_message(&found, changed()))?;
            numbers.push(found.sequence_number());
        }
        receiver.nothing_comes().await?;
        let first = ask!(receiver.receive_deferred_message(numbers[0]))?.ok_or("it is not there")?;
        assert_eq!(first.state(), ServiceBusMessageState::Deferred);
        assert_eq!(property(&first, "tried"), Some(SimpleValue::from(true)));
        ask!(receiver.complete_message(&first))?;
        let others = ask!(receiver.receive_deferred_messages(numbers[1..].to_vec().into_iter()))?;
        assert_eq!(bodies(&others), ["2", "3"]);
        ask!(receiver.abandon_message(&others[0], None))?;
        ask!(receiver.dead_letter_message(&others[1], DeadLetterOptions::default()))?;
        let again = ask!(receiver.receive_deferred_message(numbers[1]))?.ok_or("it is not there")?;
        ask!(receiver.complete_message(&again))?;
        assert!(ask!(receiver.receive_deferred_message(numbers[2])).is_err());
        Ok(())
    }
);

shows!(
    a_dead_lettered_message_says_why,
    "Receiver::dead_letter_message ServiceBusClient::create_receiver_for_queue",
    [plain, sessions, partitioned],
    |bench| {
        bench.send(&["dead"]).await?;
        let mut receiver = bench.receiver().await?;
        let found = receiver.one().await?;
        let options = DeadLetterOptions {
            dead_letter_reason: Some("reason".to_string()),
            dead_letter_error_description: Some("description".to_string()),
            properties_to_modify: changed(),
        };
        ask!(receiver.dead_letter_message(&found, options))?;
        let options = ServiceBusReceiverOptions { sub_queue: SubQueue::DeadLetter, ..Default::default() };
        let mut dead = bench.client.create_receiver_for_queue(&bench.queue, options).await?;
        let found = dead.receive_message().await?;
        assert_eq!(found.body()?, b"dead");
        assert_eq!(found.dead_letter_reason(), Some("reason"));
        assert_eq!(found.dead_letter_error_description(), Some("description"));
        assert_eq!(property(&found, "tried"), Some(SimpleValue::from(true)));
        dead.complete_message(&found).await?;
        assert!(dead.peek_message(None).await?.is_none());
        Ok(())
    }
);

shows!(
    peeked_messages_stay,
    "Receiver::peek_message Receiver::peek_messages",
    [plain, sessions, partitioned],
    |bench| {
        bench.send(&["1", "2", "3"]).await?;
        let mut receiver = bench.receiver().await?;
        let first = ask!(receiver.peek_message(None))?.ok_or("it is not there")?;
        assert_eq!(first.body()?, b"1");
        assert_eq!(first.state(), ServiceBusMessageState::Active);
        let others = ask!(receiver.peek_messages(10, None))?;
        assert_eq!(others.len(), 2);
        let all = ask!(receiver.peek_messages(10, Some(first.sequence_number())))?;
        assert_eq!(all.len(), 3);
        assert_eq!(bodies(&receiver.several(3).await?), ["1", "2", "3"]);
        Ok(())
    }
);

shows!(
    the_lock_of_a_message_is_renewed,
    "ServiceBusReceiver::renew_message_lock",
    [plain, partitioned],
    |bench| {
        bench.send(&["kept"]).await?;
        let mut receiver = bench.client.create_receiver_for_queue(&bench.queue, Default::default()).await?;
        let mut found = receiver.receive_message().await?;
        let before = found.locked_until();
        receiver.renew_message_lock(&mut found).await?;
        assert!(found.locked_until() > before);
        receiver.complete_message(&found).await?;
        assert!(receiver.renew_message_lock(&mut found).await.is_err());
        Ok(())
    }
);

shows!(
    messages_may_be_deleted_as_they_are_received,
    "ServiceBusClient::create_receiver_for_queue ServiceBusReceiver::receive_messages_with_max_wait_time",
    [plain, partitioned],
    |bench| {
        bench.send(&["1", "2"]).await?;
        let options = ServiceBusReceiverOptions {
            receive_mode: ServiceBusReceiveMode::ReceiveAndDelete,
            ..Default::default()
        };
        let mut receiver = bench.client.create_receiver_for_queue(&bench.queue, options).await?;
        let mut found = Vec::new();
        while found.len() < 2 {
            found.extend(receiver.receive_messages_with_max_wait_time(2, SOON).await?);
        }
        assert_eq!(bodies(&found), ["1", "2"]);
        assert!(receiver.peek_message(None).await?.is_none());
        Ok(())
    }
);

shows!(
    messages_are_fetched_ahead,
    "ServiceBusClient::create_receiver_for_queue ServiceBusReceiver::receive_message ServiceBusReceiver::dispose",
    [plain, partitioned],
    |bench| {
        let texts: Vec<String> = (0..25).map(|number| number.to_string()).collect();
        bench.send(&texts.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        let options = ServiceBusReceiverOptions { prefetch_count: 10, ..Default::default() };
        let mut receiver = bench.client.create_receiver_for_queue(&bench.queue, options).await?;
        for text in texts {
            let found = receiver.receive_message().await?;
            assert_eq!(found.body()?, text.as_bytes());
            receiver.complete_message(&found).await?;
        }
        assert!(receiver.peek_message(None).await?.is_none());
        Ok(receiver.dispose().await?)
    }
);
