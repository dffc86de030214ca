-- Commits to a session if it still has the version that the writer saw. Otherwise gives the session to the writer.
--
-- KEYS: the rows, the events.
-- ARGV: the version seen (empty if there must be no session), the next version (empty to write nothing), how long to keep
--       the session, how many rows to put, rows to drop, events to append, events to forget, 1 if it must be done even if
--       the server is full; then these.
-- Gives {1} if it is done, {0} if there is no such session, else {2, rows, names of events}.
local seen = redis.call('HGET', KEYS[1], '=') or ''
if seen ~= ARGV[1] then
  if seen == '' then return {0} end
  return {2, redis.call('HGETALL', KEYS[1]), redis.call('HKEYS', KEYS[2])}
end

-- Lua takes no more than some thousand arguments at once.
local function each(command, key, first, count, width)
  local last = first + count * width - 1
  while first <= last do
    local stop = math.min(first + 1000 * width - 1, last)
    redis.call(command, key, unpack(ARGV, first, stop))
    first = stop + 1
  end
  return last + 1
end

-- A server that is full refuses what takes memory, unless the script has written before: then it has to come to its end.
if ARGV[8] == '1' then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
if ARGV[2] ~= '' then
  redis.call('HSET', KEYS[1], '=', ARGV[2])
  local at = each('HSET', KEYS[1], 9, tonumber(ARGV[4]), 2)
  at = each('HDEL', KEYS[1], at, tonumber(ARGV[5]), 1)
  at = each('HSET', KEYS[2], at, tonumber(ARGV[6]), 2)
  each('HDEL', KEYS[2], at, tonumber(ARGV[7]), 1)
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return {1}
