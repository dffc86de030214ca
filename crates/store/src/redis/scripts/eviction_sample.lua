-- Returns random open sessions, and how many sessions principals have.
-- KEYS: sweep schedule, closed sessions, principals by open sessions, open sessions of a principal
-- (only to choose among these).
-- ARGV: the principal that needs room, the number of sessions.
-- Returns {open sessions, principals, open sessions of the principal that needs room, {the principal
-- with the most open sessions, their number}, session, open sessions of its principal, …}.
local largest = redis.call('ZREVRANGE', KEYS[3], 0, 0)
if largest[1] then largest[2] = tonumber(redis.call('ZSCORE', KEYS[3], largest[1])) end
local reply = {
  redis.call('ZCARD', KEYS[1]) - redis.call('SCARD', KEYS[2]),
  redis.call('ZCARD', KEYS[3]),
  tonumber(redis.call('ZSCORE', KEYS[3], ARGV[1]) or '0'),
  largest,
}
local members
-- A positive number returns distinct members.
if KEYS[4] then members = redis.call('SRANDMEMBER', KEYS[4], ARGV[2])
else members = redis.call('ZRANDMEMBER', KEYS[1], ARGV[2]) end
for _, member in ipairs(members) do
  if redis.call('SISMEMBER', KEYS[2], member) == 0 then
    reply[#reply + 1] = member
    -- The id of a session has 24 bytes; its principal follows.
    reply[#reply + 1] = tonumber(redis.call('ZSCORE', KEYS[3], string.sub(member, 25)) or '0')
  end
end
return reply
