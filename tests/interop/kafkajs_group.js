// A member of a group with kafkajs: reads that many messages, commits, leaves. Prints what it saw as JSON.
const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, topic, groupId, countText] = process.argv.slice(2)
const count = Number(countText)
const kafka = new Kafka({ clientId: 'kafkajs', brokers: [bootstrap], logLevel: logLevel.ERROR })

async function read() {
  const consumer = kafka.consumer({ groupId, heartbeatInterval: 300 })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const values = []
  let joined
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => { joined = payload })
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        values.push(message.value.toString())
        await consumer.commitOffsets([{ topic, partition, offset: String(Number(message.offset) + 1) }])
        if (values.length === count) resolve()
      },
    }).catch(reject)
  })
  await consumer.disconnect()
  return { values, partitions: joined.memberAssignment[topic], protocol: joined.groupProtocol }
}

async function main() {
  const seen = await read()
  const admin = kafka.admin()
  await admin.connect()
  const described = await admin.describeGroups([groupId])
  seen.state = described.groups[0].state
  seen.listed = (await admin.listGroups()).groups.some((group) => group.groupId === groupId)
  seen.offsets = (await admin.fetchOffsets({ groupId, topics: [topic] }))[0].partitions
  await admin.disconnect()
  console.log(JSON.stringify(seen))
}

main().catch((error) => { console.error(error); process.exit(1) })
