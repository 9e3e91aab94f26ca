use crate::bench::*;
use crate::{ask, shows};
use azservicebus::authorization::AzureNamedKeyCredential;
use azservicebus::primitives::service_bus_retry_policy::ServiceBusRetryPolicyExt;
use azservicebus::*;
use fe2o3_amqp_types::messaging::ApplicationProperties;
use fe2o3_amqp_types::primitives::SimpleValue;
use std::time::Duration;
use time::OffsetDateTime;

shows!(
    a_message_arrives_with_all_its_properties,
    "ServiceBusClient::create_sender ServiceBusSender::send_message Receiver::receive_message",
    [plain, sessions, partitioned],
    |bench| {
        let mut message = bench.message("content");
        message.set_message_id("id")?;
        message.set_correlation_id("correlation".to_string());
        message.set_subject("subject".to_string());
        message.set_to("to".to_string());
        message.set_reply_to("reply".to_string());
        message.set_reply_to_session_id("reply-session".to_string())?;
        message.set_content_type("text/plain".to_string());
        message.set_time_to_live(Duration::from_secs(3600))?;
        let properties = ApplicationProperties::builder()
            .insert("text", "é")
            .insert("number", 42i64)
            .insert("flag", true)
            .insert("real", 1.5f64)
            .build();
        *message.application_properties_mut() = Some(properties);
        let mut sender = bench.sender().await?;
        sender.send_message(message).await?;

        let mut receiver = bench.receiver().await?;
        let found = ask!(receiver.receive_message())?;
        assert_eq!(found.body()?, b"content");
        assert_eq!(found.message_id().as_deref(), Some("id"));
        assert_eq!(found.correlation_id().as_deref(), Some("correlation"));
        assert_eq!(found.subject(), Some("subject"));
        assert_eq!(found.to(), Some("to"));
        assert_eq!(found.reply_to(), Some("reply"));
        assert_eq!(found.reply_to_session_id(), Some("reply-session"));
        assert_eq!(found.content_type(), Some("text/plain"));
        assert_eq!(found.time_to_live(), Some(Duration::from_secs(3600)));
        assert_eq!(found.expires_at() - found.enqueued_time(), time::Duration::hours(1));
        assert_eq!(property(&found, "text"), Some(SimpleValue::from("é")));
        assert_eq!(property(&found, "number"), Some(SimpleValue::from(42i64)));
        assert_eq!(property(&found, "flag"), Some(SimpleValue::from(true)));
        assert_eq!(property(&found, "real"), Some(SimpleValue::from(1.5f64)));
        assert_eq!(found.delivery_count(), Some(1));
        assert!(found.sequence_number() > 0);
        assert!(found.locked_until().unwrap() > found.enqueued_time());
        assert_eq!(found.session_id(), (bench.kind == Kind::sessions).then_some(SESSION));
        assert_eq!(found.partition_key(), (bench.kind == Kind::partitioned).then_some("together"));
        Ok(())
    }
);

shows!(
    several_messages_arrive_in_order,
    "ServiceBusSender::send_messages Receiver::receive_messages",
    [plain, sessions, partitioned],
    |bench| {
        let messages = bench.messages(&["1", "2", "3"]);
        let mut sender = bench.sender().await?;
        sender.send_messages(messages).await?;
        assert_eq!(bodies(&bench.receiver().await?.several(3).await?), ["1", "2", "3"]);
        Ok(())
    }
);

shows!(
    a_batch_arrives_in_order,
    "ServiceBusSender::create_message_batch ServiceBusSender::send_message_batch \
     ServiceBusMessageBatch::try_add_message ServiceBusMessageBatch::len",
    [plain, sessions, partitioned],
    |bench| {
        let mut sender = bench.sender().await?;
        let mut batch = sender.create_message_batch(Default::default())?;
        for message in bench.messages(&["1", "2", "3"]) {
            batch.try_add_message(message).map_err(|_| "it did not fit")?;
        }
        assert_eq!(batch.len(), 3);
        sender.send_message_batch(batch).await?;
        assert_eq!(bodies(&bench.receiver().await?.several(3).await?), ["1", "2", "3"]);
        Ok(())
    }
);

shows!(
    a_batch_refuses_what_does_not_fit,
    "ServiceBusSender::create_message_batch ServiceBusMessageBatch::try_add_message \
     ServiceBusMessageBatch::max_size_in_bytes ServiceBusMessageBatch::size_in_bytes",
    [plain, sessions, partitioned],
    |bench| {
        let sender = bench.sender().await?;
        assert_eq!(sender.create_message_batch(Default::default())?.max_size_in_bytes(), 262_144);
        let options = CreateMessageBatchOptions { max_size_in_bytes: Some(2000) };
        let mut batch = sender.create_message_batch(options)?;
        let body = "x".repeat(1200);
        assert!(batch.try_add_message(bench.message(&body)).is_ok());
        assert!(batch.try_add_message(bench.message(&body)).is_err());
        assert!((1200..=2000).contains(&batch.size_in_bytes()));
        Ok(())
    }
);

// The crate sends a rejected message again, finds that it was settled, and reports success.
shows!(
    a_large_message_arrives_and_one_above_the_limit_does_not,
    "ServiceBusSender::send_message",
    [plain, sessions, partitioned],
    |bench| {
        let mut sender = bench.sender().await?;
        let large = "x".repeat(200 * 1024);
        sender.send_message(bench.message(&"x".repeat(300 * 1024))).await?;
        sender.send_message(bench.message(&large)).await?;
        let mut receiver = bench.receiver().await?;
        assert_eq!(bodies(&[receiver.one().await?]), [large]);
        receiver.nothing_comes().await
    }
);

shows!(
    a_scheduled_message_comes_at_its_time,
    "ServiceBusSender::schedule_message",
    [plain, sessions, partitioned],
    |bench| {
        let due = OffsetDateTime::now_utc() + time::Duration::seconds(1);
        let message = bench.message("later");
        let mut sender = bench.sender().await?;
        sender.schedule_message(message, due).await?;
        let mut receiver = bench.receiver().await?;
        let found = receiver.one().await?;
        assert_eq!(bodies(&[found]), ["later"]);
        assert!(OffsetDateTime::now_utc() >= due);
        Ok(())
    }
);

shows!(
    scheduled_messages_are_cancelled,
    "ServiceBusSender::schedule_messages ServiceBusSender::cancel_scheduled_message \
     ServiceBusSender::cancel_scheduled_messages",
    [plain, sessions, partitioned],
    |bench| {
        let due = OffsetDateTime::now_utc() + time::Duration::hours(1);
        let mut sender = bench.sender().await?;
        let numbers = sender.schedule_messages(bench.messages(&["1", "2", "3"]), due).await?;
        assert_eq!(numbers.len(), 3);
        let mut receiver = bench.receiver().await?;
        let found = ask!(receiver.peek_messages(10, None))?;
        assert_eq!(found.len(), 3);
        assert_eq!(found[0].state(), ServiceBusMessageState::Scheduled);
        sender.cancel_scheduled_message(numbers[0]).await?;
        sender.cancel_scheduled_messages(numbers[1..].to_vec()).await?;
        assert!(ask!(receiver.peek_messages(10, Some(0)))?.is_empty());
        assert!(sender.cancel_scheduled_message(numbers[0]).await.is_err());
        Ok(())
    }
);

shows!(
    an_unknown_queue_is_refused,
    "ServiceBusClient::create_sender ServiceBusClient::create_receiver_for_queue",
    [plain],
    |bench| {
        let refused = bench.client.create_sender("no-such-queue", Default::default()).await;
        assert!(format!("{refused:?}").contains("404"));
        let refused = bench.client.create_receiver_for_queue("no-such-queue", Default::default()).await;
        assert!(format!("{refused:?}").contains("404"));
        Ok(())
    }
);

shows!(
    a_wrong_key_is_refused,
    "ServiceBusClient::new_from_connection_string",
    [plain],
    |bench| {
        let other = setting("TANDEMBUS_CONNECTION_STRING").replace("SharedAccessKey=", "SharedAccessKey=no");
        let mut client = connect(&other).await?;
        let refused = client.create_sender(&bench.queue, Default::default()).await;
        assert!(format!("{refused:?}").contains("401"));
        Ok(())
    }
);

shows!(
    a_name_and_a_key_open_a_client,
    "ServiceBusClient::new_from_named_key_credential ServiceBusClient::dispose ServiceBusSender::dispose",
    [plain],
    |bench| {
        let credential = AzureNamedKeyCredential::new(setting("TANDEMBUS_KEY_NAME"), setting("TANDEMBUS_KEY"));
        let host = bench.client.fully_qualified_namespace();
        let mut client =
            ServiceBusClient::new_from_named_key_credential(host, credential, Default::default()).await?;
        let mut sender = client.create_sender(&bench.queue, Default::default()).await?;
        sender.send_message("by key").await?;
        sender.dispose().await?;
        client.dispose().await?;
        assert_eq!(bodies(&[bench.receiver().await?.one().await?]), ["by key"]);
        Ok(())
    }
);
