-- Reads events if the session still has the version that was seen. Otherwise gives the session.
-- KEYS: the rows, the events. ARGV: the version seen, then the names of events.
-- Gives {1, payloads}, {0} if there is no such session, else {2, rows, names of events}.
local seen = redis.call('HGET', KEYS[1], '=')
if not seen then return {0} end
if seen ~= ARGV[1] then
  return {2, redis.call('HGETALL', KEYS[1]), redis.call('HKEYS', KEYS[2])}
end
local payloads = {}
for at = 2, #ARGV do
  payloads[at - 1] = redis.call('HGET', KEYS[2], ARGV[at])
end
return {1, payloads}
