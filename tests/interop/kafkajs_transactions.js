// Producers of kafkajs that do as they are told: see tests/support/remote_client.py for the commands.
const readline = require('readline')
const { CompressionTypes, Kafka, logLevel } = require('kafkajs')

const [bootstrap] = process.argv.slice(2)
const retry = { initialRetryTime: 20, maxRetryTime: 200, retries: 100 }
const kafka = new Kafka({ clientId: 'kafkajs', brokers: [bootstrap], logLevel: logLevel.NOTHING, retry })
const BATCH = 50

const producers = new Map()

const commands = {
  async open({ as, transactional_id: transactionalId, timeout_ms: transactionTimeout, codec }) {
    const producer = kafka.producer({ transactionalId, transactionTimeout, maxInFlightRequests: 1, idempotent: true })
    await producer.connect()
    await (await producer.transaction()).abort() // only the first transaction asks for an identity; empty, it tells nobody
    producers.set(as, { producer, codec, transaction: null })
  },
  async begin({ as }) {
    const here = producers.get(as)
    here.transaction = await here.producer.transaction()
  },
  async send({ as, topic, partition, values }) {
    const { transaction, codec } = producers.get(as)
    const compression = CompressionTypes[codec.toUpperCase()] || CompressionTypes.None
    for (let start = 0; start < values.length; start += BATCH) {
      const messages = values.slice(start, start + BATCH).map((value) => ({ value, partition }))
      await transaction.send({ topic, acks: -1, compression, messages })
    }
  },
  async send_offsets({ as, group, topic, offsets }) {
    const partitions = Object.entries(offsets).map(([index, offset]) => ({ partition: Number(index), offset: String(offset) }))
    await producers.get(as).transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic, partitions }] })
  },
  async commit({ as }) { await producers.get(as).transaction.commit() },
  async abort({ as }) { await producers.get(as).transaction.abort() },
  async close({ as }) { await producers.get(as).producer.disconnect() },

  async read({ topic, partition, last, isolation }) {
    const groupId = `${isolation}-${topic}`
    const consumer = kafka.consumer({ groupId, readUncommitted: isolation === 'read_uncommitted', maxWaitTimeInMs: 50 })
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    const values = []
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
      consumer.run({
        autoCommit: false,
        eachMessage: async ({ partition: from, message }) => {
          if (from !== partition) return
          values.push(message.value.toString())
          if (values[values.length - 1] === last) resolve()
        },
      }).catch(reject)
    })
    await consumer.disconnect()
    return values
  },
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const command = JSON.parse(line)
    let outcome
    try {
      outcome = { done: (await commands[command.do](command)) ?? null }
    } catch (error) {
      outcome = { refused: error.type || `${error.name}: ${error.message}` }
    }
    console.log(JSON.stringify(outcome))
  }
}

main().catch((error) => { console.error(error); process.exit(1) })
